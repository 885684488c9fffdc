"""Linear knowledge before fine-tuning: is a relation that a linear probe can read one that fine-tuning generalizes?"""
