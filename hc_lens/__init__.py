"""Which subnetwork of a fine-tuned language model does what, and how it generalizes.

The public names are imported on first use: `import hc_lens` itself loads neither torch nor TransformerLens.
"""
