"""What texts are made of: templates, quotations, and the small parts of what people read."""
