"""What a checkpoint keeps of a model, and what is put back from one of an earlier version."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tandem.training.checkpoints import Checkpoints, State, list_saved_tensors, load_weights

pytestmark = pytest.mark.gpu


class Moving(nn.Module):
    """A weight that learns, one that is frozen, a buffer that is saved and one that is not."""

    def __init__(self):
        super().__init__()
        self.learned = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("queue", torch.ones(3))
        self.register_buffer("ids", torch.arange(3), persistent=False)


def test_what_learns_and_what_moves_is_kept():
    assert sorted(list_saved_tensors(Moving())) == ["learned", "queue"]


def test_a_checkpoint_without_buffers_leaves_them(tmp_path):
    model, path = Moving(), tmp_path / "weights.safetensors"
    save_file({"learned": torch.full((2,), 5.0)}, path)
    load_weights(model, path)
    assert model.learned.tolist() == [5.0, 5.0]
    assert model.queue.tolist() == [1.0, 1.0, 1.0]
    save_file({"learned": torch.zeros(2), "queue": torch.full((3,), 7.0)}, path)
    load_weights(model, path)
    assert model.queue.tolist() == [7.0, 7.0, 7.0]


def test_a_checkpoint_without_a_weight_that_learns_is_none(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"queue": torch.zeros(3)}, path)
    with pytest.raises(KeyError):
        load_weights(Moving(), path)


@pytest.mark.parametrize(("saved", "left"), [(None, [0]), (4, [0, 2, 4]), (8, [0, 2, 4, 6])])
def test_best_weights_of_steps_that_are_taken_again_are_gone(tmp_path, saved, left):
    checkpoints = Checkpoints(tmp_path, "mine")
    model = Moving()
    optimizer = torch.optim.AdamW([model.learned])
    for step in (0, 2, 4):
        save_file({"learned": torch.zeros(2)}, tmp_path / f"best-{step:08d}.safetensors")
    if saved is not None:
        checkpoints.save(State(saved), model, optimizer)
    save_file({"learned": torch.zeros(2)}, tmp_path / "best-00000006.safetensors")
    assert checkpoints.load(model, optimizer).step == (saved or 0)
    steps = [int(path.stem.removeprefix("best-")) for path in checkpoints.find_best()]
    assert steps == left
