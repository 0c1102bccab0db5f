"""Tiny sweeps, and a launcher that trains in this process, each recipe once."""

import shutil

import pytest


@pytest.fixture
def grid(trained, tiny):
    """A function: what differs from one size, one seed and three variants -> a `Sweep` of tiny runs."""
    from stickymoe.experiments.sweeps.sweep_file import Sweep

    def make(**changes):
        content = {
            "name": "small-grid",
            "variants": ["vanilla", "soft-0.1", "remoe"],
            "seeds": [1],
            "sizes": {"tiny": {"recipe": str(trained / "tiny.toml"), "overrides": ["objective.consistency=0.0"]}},
        }
        return Sweep.model_validate(content | changes)

    return make


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """Where trained runs are kept for other tests."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def here(kept):
    """A launcher that trains in this process and notes whom it trained; `dies` names runs that end badly.

    A recipe that another test has trained is copied, unless `afresh`.
    """
    from stickymoe.core.errors import StickyMoEError
    from stickymoe.experiments.launchers.launcher import OUTPUT_FILE, Launcher, Started
    from stickymoe.experiments.recipe_file import load_recipe
    from stickymoe.experiments.run import train_run

    class Ended(Started):
        def __init__(self, code):
            self.code = code

        def has_begun(self):
            return True

        def poll(self):
            return self.code

        def interrupt(self):
            pass

        def kill(self):
            pass

    class Here(Launcher):
        def __init__(self):
            self.trained, self.dies, self.afresh, self.closed = [], set(), False, 0

        @classmethod
        def open(cls, folder, options):
            return cls()

        def slots(self):
            return 1

        def start(self, folder, command, parallel):
            assert command[:3] == ["-m", "stickymoe", "train"]
            assert command[-1] == "--resume"
            options = dict(zip(command[4::2], command[5::2], strict=False))
            assert options["--out"] == str(folder)
            self.trained.append(folder.name)
            folder.mkdir(parents=True, exist_ok=True)
            output = folder / OUTPUT_FILE
            if folder.name in self.dies:
                output.write_text("training\nerror: the disk is on fire\n")
                return Ended(2)
            recipe = load_recipe(command[3])
            known = kept / f"{recipe.fingerprint()}-{options['--split']}"
            try:
                if self.afresh or not known.exists():
                    train_run(recipe, folder, split=options["--split"], resume=True)
                if not known.exists():
                    shutil.copytree(folder, known, ignore=shutil.ignore_patterns("sweep.json"))
                elif not self.afresh:
                    shutil.copytree(known, folder, dirs_exist_ok=True)
            except StickyMoEError as error:
                output.write_text(f"error: {error}\n")
                return Ended(2)
            output.write_text("done\n")
            return Ended(0)

        def close(self):
            self.closed += 1

    return Here()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    from stickymoe.experiments import runner

    monkeypatch.setattr(runner, "_POLL_SECONDS", 0.01)
