(class_declaration name: (name) @name) @symbol
(interface_declaration name: (name) @name) @symbol
(trait_declaration name: (name) @name) @symbol
(enum_declaration name: (name) @name) @symbol
(function_definition name: (name) @name) @symbol
(method_declaration name: (name) @name) @symbol
(const_declaration (const_element (name) @name) @symbol)
