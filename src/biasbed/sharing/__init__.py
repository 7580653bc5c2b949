"""Results, models and data in the formats of other tools: Every Eval Ever, Hugging Face's hub.

`export` and `import` of the command line begin here. Nothing is uploaded.
"""
