# make run                the main job: every system on the embedded default, then the result table
# make run PROFILE=long   the same with more steps (config/long.yaml)
# make test               lint, types, layers, tests
# make check              the same without the tests that are marked slow: for the loop of work
# make torture            hundreds of kills, full disks, damaged files and broken configurations; 40 minutes, better as root
# make slurm              Snakemake on a slurm of this machine (tests/slurm/): faults, and the main job; an hour, as root
CORES ?= $(shell nproc)
CONFIG = $(if $(PROFILE),--configfile config/$(PROFILE).yaml)
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Installation leaves compiling to the first use; where that is forbidden every job would compile torch again, 6 s each.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: run test check torture slurm lint lock

run: .venv/.installed
	@snakemake --cores $(CORES) --quiet rules $(CONFIG)
	@python -m tandem show results/tables/summary.csv
	@echo "report: $(CURDIR)/results/report.html"

test: .venv/.installed lint
	@OMP_NUM_THREADS=1 python -m pytest -n $(CORES) --maxprocesses 8 --dist loadfile --no-loadscope-reorder

check: .venv/.installed lint
	@OMP_NUM_THREADS=1 python -m pytest -n $(CORES) --maxprocesses 8 --dist loadfile -m "not slow"

slurm: .venv/.installed
	@TANDEM_SLURM=1 python -m pytest tests/slurm -rs --durations=0

torture: .venv/.installed
	@TANDEM_TORTURE=1 python -m pytest tests/faults tests/trust -s

lint: .venv/.installed
	@ruff check
	@ruff format --check
	@mypy
	@lint-imports > .venv/layers.txt || { cat .venv/layers.txt; exit 1; }

# Renew the pins from envs/requirements.in; then `make test`.
lock:
	@python3 -m venv .venv-lock
	@.venv-lock/bin/pip install -qq -r envs/requirements.in
	@{ head -1 envs/requirements.lock; .venv-lock/bin/pip freeze --all | grep -vE '^(pip|wheel)=' | sed 's/+cpu$$//'; } > envs/requirements.lock.new
	@mv envs/requirements.lock.new envs/requirements.lock
	@rm -rf .venv-lock

.venv/.installed: envs/requirements.lock envs/setup.sh pyproject.toml
	@envs/setup.sh
