(function_declaration name: (identifier) @name) @symbol
(method_declaration receiver: (parameter_list (parameter_declaration type: [
  (type_identifier) @owner
  (generic_type type: (type_identifier) @owner)
  (pointer_type [(type_identifier) @owner (generic_type type: (type_identifier) @owner)])]))
  name: (field_identifier) @name) @symbol
(type_spec name: (type_identifier) @name) @symbol
(type_alias name: (type_identifier) @name) @symbol
(const_spec name: (identifier) @name) @symbol
(source_file (var_declaration (var_spec name: (identifier) @name) @symbol))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @symbol)))
