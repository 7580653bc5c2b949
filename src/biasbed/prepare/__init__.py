"""Making what some methods need beforehand: style and image-to-image networks, stylized and distorted images."""
