(class_declaration name: (identifier) @name) @symbol
(field_definition property: (_) @name) @symbol
