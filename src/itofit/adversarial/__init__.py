"""The adversarial solver: Algorithm 1 of the paper, one learned probe a snapshot."""
