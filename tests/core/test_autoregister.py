"""Registration with transformers: in either import order, after whatever is imported first, and never early.

Imports are the subject, so most tests run in a python of their own.
"""

import importlib
import importlib.machinery
import subprocess
import sys
import textwrap

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import stickymoe
from stickymoe.core import autoregister
from stickymoe.core.autoregister import AutoRegister

LIGHT = "assert not {'torch', 'transformers', 'stickymoe.model'} & set(sys.modules), 'not light'"
REGISTERED = """
from transformers import AutoConfig, AutoModelForCausalLM
from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM
tiny = dict(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, expert_intermediate_size=4)
assert type(AutoConfig.for_model("sticky_moe", **tiny)) is StickyMoEConfig
assert type(AutoModelForCausalLM.from_config(StickyMoEConfig(**tiny))) is StickyMoEForCausalLM
"""


def python(*pieces, fails=False):
    """Run the pieces in a fresh interpreter and return what it printed."""
    code = "\n".join(["import sys", *(textwrap.dedent(piece) for piece in pieces)])
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=600)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("from transformers import AutoModelForCausalLM; import stickymoe", id="auto-class-then-stickymoe"),
        pytest.param("import stickymoe; from transformers import Trainer", id="stickymoe-then-trainer"),
        pytest.param("import stickymoe.model.decoder", id="a-module-of-the-model-room"),
    ],
)
def test_the_auto_classes_know_the_model_whatever_is_imported_first(first):
    python(first, REGISTERED)


def test_a_saved_folder_is_read_back_by_the_auto_classes_tokenizer_included(tmp_path):
    config = stickymoe.StickyMoEConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, expert_intermediate_size=4
    )
    stickymoe.StickyMoEForCausalLM(config).save_pretrained(tmp_path)
    tokenizer = Tokenizer(models.WordLevel({"we": 0, "the": 1, "people": 2, "?": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(tmp_path)
    python(
        "import stickymoe",
        LIGHT,
        f"""
        from transformers import AutoTokenizer
        words = AutoTokenizer.from_pretrained({str(tmp_path)!r})
        assert words("we the people")["input_ids"] == [0, 1, 2]

        from transformers import AutoConfig, AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained({str(tmp_path)!r})
        assert type(model) is stickymoe.StickyMoEForCausalLM
        assert type(AutoConfig.from_pretrained({str(tmp_path)!r})) is stickymoe.StickyMoEConfig
        assert model(words("we", return_tensors="pt")["input_ids"]).logits.shape == (1, 1, 11)
        """,
    )


def test_a_reloaded_mapping_is_filled_again_and_can_be_pickled_and_another_registration_is_left_alone():
    python(
        "import stickymoe, transformers.modeling_utils",
        REGISTERED,
        """
        import importlib, pickle
        from transformers.models.auto import configuration_auto, modeling_auto

        again = pickle.loads(pickle.dumps(configuration_auto.CONFIG_MAPPING))
        assert again["sticky_moe"] is StickyMoEConfig
        importlib.reload(configuration_auto)
        assert configuration_auto.CONFIG_MAPPING["sticky_moe"] is StickyMoEConfig
        assert configuration_auto.AutoConfig.for_model("sticky_moe").model_type == "sticky_moe"

        class Mine(StickyMoEForCausalLM):
            config_class = StickyMoEConfig

        AutoModelForCausalLM.register(StickyMoEConfig, Mine, exist_ok=True)
        import transformers.models.gpt2.modeling_gpt2
        importlib.reload(stickymoe)
        assert modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING[StickyMoEConfig] is Mine
        finders = [finder for finder in sys.meta_path if type(finder).__name__ == "AutoRegister"]
        assert len(finders) == 1
        """,
    )


def test_an_error_in_the_model_room_reaches_whoever_imports_the_auto_class():
    output = python(
        "import stickymoe",
        "sys.modules['stickymoe.model'] = None  # what python itself writes to forbid an import",
        "from transformers import AutoConfig",
        fails=True,
    )
    assert "import of stickymoe.model halted" in output


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """A package under watch: `outer` imports `inner`, `broken` imports `inner` and fails. Yields the registrations."""
    package = tmp_path / "watched_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("value = 1\n")
    (package / "outer.py").write_text("from watched_package import inner\nfinished = True\n")
    (package / "broken.py").write_text("from watched_package import inner\nraise RuntimeError('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    calls = []
    monkeypatch.setattr(autoregister, "WATCHED", ("watched_package.",))
    monkeypatch.setattr(autoregister, "register", lambda: calls.append("registered"))
    others = [finder for finder in sys.meta_path if not isinstance(finder, AutoRegister)]
    monkeypatch.setattr(sys, "meta_path", [AutoRegister(), *others])
    yield calls
    for name in [name for name in sys.modules if name.startswith("watched_package")]:
        del sys.modules[name]


def test_registration_waits_for_the_outermost_import(watched):
    importlib.import_module("watched_package")
    watched.clear()
    outer = importlib.import_module("watched_package.outer")
    assert watched == ["registered"]
    assert outer.finished


def test_a_failed_import_registers_nothing_and_the_next_one_does(watched):
    importlib.import_module("watched_package")
    watched.clear()
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module("watched_package.broken")
    assert watched == []
    importlib.import_module("watched_package.outer")
    assert watched == ["registered"]


def test_the_imports_a_registration_makes_do_not_start_another(watched, monkeypatch):
    def register():
        watched.append("begin")
        importlib.import_module("watched_package.outer")
        watched.append("end")

    monkeypatch.setattr(autoregister, "register", register)
    importlib.import_module("watched_package.inner")
    assert watched == ["begin", "end"]


def test_modules_elsewhere_are_left_to_the_other_finders(watched, tmp_path):
    (tmp_path / "watched_package_of_others.py").write_text("")
    importlib.import_module("watched_package_of_others")
    assert watched == []
    del sys.modules["watched_package_of_others"]


def test_a_watched_module_ends_up_with_its_own_loader(watched):
    inner = importlib.import_module("watched_package.inner")
    assert type(inner.__loader__) is importlib.machinery.SourceFileLoader
    assert inner.__spec__.loader is inner.__loader__
    assert importlib.reload(inner) is inner
    assert inner.__spec__.loader is inner.__loader__


def test_a_module_that_does_not_exist_is_reported_as_ever(watched):
    with pytest.raises(ModuleNotFoundError, match=r"watched_package\.nowhere"):
        importlib.import_module("watched_package.nowhere")


def test_installing_twice_installs_once():
    finders = [finder for finder in sys.meta_path if isinstance(finder, AutoRegister)]
    autoregister.install()
    assert [finder for finder in sys.meta_path if isinstance(finder, AutoRegister)] == finders
    assert len(finders) == 1
