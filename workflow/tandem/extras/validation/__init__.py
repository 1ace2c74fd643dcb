"""What a training is validated on within itself, and its validations: packages and estimates share them."""
