(function_item name: (identifier) @name) @symbol
(function_signature_item name: (identifier) @name) @symbol
(struct_item name: (type_identifier) @name) @symbol
(enum_item name: (type_identifier) @name) @symbol
(union_item name: (type_identifier) @name) @symbol
(trait_item name: (type_identifier) @name) @symbol
(impl_item type: [(type_identifier) @name (generic_type type: (type_identifier) @name)]) @symbol
(mod_item name: (identifier) @name body: (_)) @symbol
(type_item name: (type_identifier) @name) @symbol
(const_item name: (identifier) @name) @symbol
(static_item name: (identifier) @name) @symbol
(macro_definition name: (identifier) @name) @symbol
