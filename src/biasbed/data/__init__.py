"""Sources of images, their transforms, and the order in which training and evaluation read them."""
