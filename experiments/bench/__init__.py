"""What a pruning step costs in time and memory, beside the recipe as published and beside the least it could cost."""
