# Aliases, for those who type `make`; script/ works without it. Arguments: make test ARGS="-k shell"
.PHONY: demo test test-all check bench
demo test test-all check bench:
	@script/$@ $(ARGS)
