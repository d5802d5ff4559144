# Every target is one line of `cargo xtask`; the work is in xtask/, in Rust. ARGS is passed on:
#     make demo ARGS="--scale tiny"
CARGO ?= cargo
# rustup adds this folder to the PATH of login shells only; a build machine often has no login shell.
export PATH := $(PATH):$(HOME)/.cargo/bin
ARGS ?=

.DEFAULT_GOAL := help
VERBS := help setup build demo test bench fuzz lint docs package clean tidy
.PHONY: $(VERBS)

$(filter-out demo,$(VERBS)):
	@$(CARGO) xtask $@ $(ARGS)

# Where nothing is compiled yet the task is compiled with the demo's own profile, so that the two share libraries.
demo:
	@$(CARGO) $(if $(wildcard target/release/xtask),xtask,run --quiet --profile demo -p xtask --) $@ $(ARGS)
