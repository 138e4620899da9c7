# Every command sets up by itself what is missing; `make help` lists them.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo up down status reset test lint fmt bench

help: ## show this list
	@echo 'Tenure. Commands:'
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | column -t -s @ 2>/dev/null \
	  || sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1   \2/p' $(MAKEFILE_LIST)
	@echo 'Settings of make up by environment, for example: TENURE_LEASE=10s TENURE_SLOTS=8 TENURE_SWEEP_INTERVAL=1s'
	@echo 'TENURE_BACKOFF_BASE=1s TENURE_SHUTDOWN_GRACE=20s TENURE_LOG=debug TENURE_WORKERS=2'
	@echo 'One binary: deploy/local/stack.sh restart|stop|start|kill worker|gateway|sweeper|dead-letter-admin (--help explains)'

demo: ## start everything, import a real file, show the result, stop everything
	@deploy/local/demo.sh

up: ## start everything and leave it running; addresses and tokens in .local/env
	@deploy/local/stack.sh up

down: ## stop what make up started; its data stays
	@deploy/local/stack.sh down

status: ## what of make up is running
	@deploy/local/stack.sh status

reset: ## stop what make up started and remove its data
	@deploy/local/stack.sh wipe

test: ## all tests, on services of their own (ARGS='-p tenure-core' for some of them)
	@deploy/local/test.sh $(ARGS)

lint: ## format, clippy, dependencies, protocol, scripts, house rules
	@deploy/local/lint.sh

fmt: ## format the code
	@cargo fmt --all

bench: ## measure on services of its own; one JSON line per figure
	@deploy/local/bench.sh $(ARGS)
