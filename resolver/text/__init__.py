"""Building blocks of texts: templates, Jinja filters, Markdown and quoted untrusted text."""
