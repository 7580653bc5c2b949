"""biasbed: does a training method really make an image classifier rely less on texture?"""

__version__ = "0.1.0"
