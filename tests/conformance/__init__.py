"""What every training method must fulfil, ours or a user's: `biasbed test --algorithm <name or file.py:Class>`."""
