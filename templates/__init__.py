"""Every sentence that a person or a model reads, as Jinja templates."""
