"""What a fit maximises or solves."""
