# make run                the main job: every system on the embedded default, then the result table
# make run PROFILE=long   the same with more steps (config/long.yaml)
# make test               lint, types, layers, docs and tests, side by side
# make check              the same without docs and slow tests (tests/slow.txt): for the loop of work
# make torture            hundreds of kills, full disks, damaged files and broken configurations; 40 minutes, better as root
# make docs               the site of docs/ in .site/, with every link checked
# make reference          the pages and schemas that are generated from the code
# make pictures           the pictures in docs/images/, of results/report.html; needs chromium
# make slurm              Snakemake on a slurm of this machine (tests/slurm/): faults, and the main job; an hour, as root
# make machines           Snakemake on a controller and three nodes, each in namespaces of this machine; a quarter of an hour, as root
# Cores that may be used, by affinity and by a container's quota, which nproc may not know.
CORES ?= $(shell $${PYTHON:-python3} -IS workflow/tandem/cluster/threads.py 2>/dev/null || nproc)
# Of tests: two more than there are cores, since tests wait for processes that they start, kill or watch.
WORKERS = $(shell expr $(CORES) + 2)
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# A checkout that was copied or moved runs its own code, not that of the one where .venv was made.
export PYTHONPATH := $(CURDIR)/workflow
# Installation leaves compiling to the first use; where that is forbidden every job would compile torch again, 6 s each.
unexport PYTHONDONTWRITEBYTECODE
# Programs in .venv/bin begin with its path: where that is another place's, envs/setup.sh writes them anew.
ifeq ($(shell test -L .venv && echo linked || grep -sF "$(CURDIR)/.venv" .venv/bin/activate),)
.PHONY: .venv/.installed .venv/.tests-installed
endif
ifneq ($(PROFILE),)
ifeq ($(wildcard config/$(PROFILE).yaml),)
$(error PROFILE=$(PROFILE): there is no config/$(PROFILE).yaml, but $(patsubst config/%.yaml,%,$(wildcard config/*.yaml)))
endif
endif
.PHONY: run test check tests torture slurm machines lint lock docs reference pictures

run: .venv/.installed
	@python -m tandem run $(if $(PROFILE),config/$(PROFILE).yaml) -- --cores $(CORES)

test:
	@$(MAKE) -j --no-print-directory lint docs tests

check:
	@$(MAKE) -j --no-print-directory lint tests ONLY='-m "not slow"'

tests: .venv/.tests-installed
	@OMP_NUM_THREADS=1 python -m pytest -n $(WORKERS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder $(ONLY)

slurm: .venv/.tests-installed
	@TANDEM_SLURM=1 python -m pytest tests/slurm --ignore tests/slurm/test_machines_dag.py -rs --durations=0

machines: .venv/.tests-installed
	@TANDEM_SLURM=1 python -m pytest tests/slurm/test_machines_dag.py -rs --durations=0

torture: .venv/.tests-installed
	@TANDEM_TORTURE=1 python -m pytest tests/faults tests/trust -s

lint: .venv/.tests-installed
	@ruff check --quiet
	@ruff format --check --quiet
	@mypy --no-error-summary
	@lint-imports > .venv/layers.txt || { cat .venv/layers.txt; exit 1; }

# The notice is about another program of the site's authors.
docs: .venv/.tests-installed
	@NO_MKDOCS_2_WARNING=1 mkdocs build --quiet

reference: .venv/.tests-installed
	@python -m tandem.extras.reference

pictures: .venv/.tests-installed
	@python tests/report/screenshots.py results/report.html docs/images

# Renew the pins from envs/requirements.in and requirements-tests.in; then `make test`.
FREEZE = .venv-lock/bin/pip freeze --all | grep -vE '^(pip|wheel)=' | sed 's/+cpu$$//'
lock:
	@python3 -m venv .venv-lock
	@.venv-lock/bin/pip install -qq -r envs/requirements.in
	@{ head -1 envs/requirements.lock; $(FREEZE); } > envs/requirements.lock.new
	@.venv-lock/bin/pip install -qq -r envs/requirements-tests.in -c envs/requirements.lock.new
	@{ head -1 envs/requirements-tests.lock; $(FREEZE) | grep -vxFf envs/requirements.lock.new; } > envs/requirements-tests.lock.new
	@for name in requirements requirements-tests; do mv envs/$$name.lock.new envs/$$name.lock; done
	@rm -rf .venv-lock

.venv/.installed: envs/requirements.lock envs/setup.sh pyproject.toml
	@envs/setup.sh

# One installation, not two at once: what tests need comes on top of what a run needs, which is there then, too.
.venv/.tests-installed: envs/requirements.lock envs/requirements-tests.lock envs/setup.sh pyproject.toml
	@envs/setup.sh tests
