"""Does a validation on a reduced corpus order checkpoints as one on the full corpus does?"""
