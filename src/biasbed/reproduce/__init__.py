"""A tracked run trained once more, and how near its numbers the second training comes."""
