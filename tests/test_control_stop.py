"""`control --stop`: which weights the final model then has; true with and without `load_best_model_at_end`."""

import pytest
import torch
from commander import Commander
from safetensors.torch import load_file
from transformers import TrainerCallback


class Worse(TrainerCallback):
    """From the second evaluation on the model is worse: its embeddings are noise."""

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        if state.global_step == 2:
            with torch.no_grad():
                model.get_input_embeddings().weight.normal_()


@pytest.mark.parametrize("best", [True, False])
def test_the_answer_says_which_weights_the_final_model_has(train, tmp_path, best):
    commander = Commander(tmp_path / "run", {5: ["--stop"]})
    evaluated = {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "val_size": 0.2}
    keeps = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss"} if best else {}
    folder = train(commander.output_dir, [commander, Worse()], callbacks=["vram"], max_steps=9, **evaluated, **keeps)
    code, reply = commander.replies()[5]
    said = {result["what"]: result["text"] for result in reply["results"]}
    assert code == 0 and (folder / "checkpoint-5").is_dir()
    source = folder / ("checkpoint-2" if best else "checkpoint-5")
    assert said["stop"].endswith(f"has the weights of {source if best else 'step 5'}")
    final, kept = (load_file(place / "model.safetensors") for place in (folder, source))
    assert all(torch.equal(final[name], kept[name]) for name in final)
