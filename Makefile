# Aliases for the commands in script/, which work without make. Arguments: make test ARGS="-k shell"
.PHONY: demo test test-all check bench
demo test test-all check bench:
	@script/$@ $(ARGS)
