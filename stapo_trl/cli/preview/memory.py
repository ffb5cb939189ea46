r"""
An estimate of the GPU memory of a run, from the model's configuration and the settings alone; never measured on a GPU.

P parameters of w bytes (4 for float32, else 2), T of them trained, on N processes; a model of L layers, width h;
autocast to c bytes; micro-batches of n tokens:

- weights: P w (4 bits: half a byte, and the constants of each block of 64, for linear layers), / N from stage 3
- gradients: 4 T for an adapter, else w T, / N from stage 2; AdamW: twice that (2 bytes in 8 bits), / N from stage 1
- copies in the compute type: stage 3 gathers two layers and the tables; otherwise autocast keeps c T of float32
  weights
- activations: with checkpointing L n h w' (w' bytes of the residual stream) and one layer, otherwise L layers; a layer
  keeps n c (6 h + 3 (q + 2 kv) + 4 i) for widths q, kv of the attention and i of the MLP
- loss: one tile of logits, and the float32 gradient of a trained head
- generation: vLLM's share of the GPU, or 2 L kv c bytes for each token of `generate`'s sequences

Generation and update follow each other: during the update, vLLM in sleep mode and the cache of `generate` are free.
Kernels, fragmentation and padding are not modelled.
"""

from dataclasses import dataclass

import torch
from accelerate import init_empty_weights
from peft import get_peft_model
from transformers import AutoModelForCausalLM, PretrainedConfig
from trl import GRPOConfig, ModelConfig, get_peft_config


GIB = 2**30
CONTEXT = 1.0  # GiB of CUDA context and allocator slack
TILE = (4096, 32768)  # tokens and vocabulary entries of one tile of TRL's fused LM head
# What each engine shards: from stage 1 the optimizer state, from 2 the gradients, from 3 the weights
STAGES = {"deepspeed_zero1": 1, "deepspeed_zero2": 2, "deepspeed_zero3": 3, "fsdp2": 3}


@dataclass(frozen=True)
class Size:
    """Parameters: all, those of linear layers without the head, and the trained ones."""

    total: int
    linear: int
    trained: int


def count_parameters(config: PretrainedConfig, model_args: ModelConfig) -> Size:
    """Count the parameters of a causal language model, and of its adapter, without allocating them."""
    with init_empty_weights(include_buffers=True):
        model = AutoModelForCausalLM.from_config(config)
        model.tie_weights()
        head = model.get_output_embeddings()
        layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear) and module is not head]
        total, linear = model.num_parameters(), sum(layer.weight.numel() for layer in layers)
        if model_args.use_peft:
            model = get_peft_model(model, get_peft_config(model_args))
    return Size(total, linear, sum(p.numel() for p in model.parameters() if p.requires_grad))


def _attention_widths(text: PretrainedConfig) -> tuple[int, int]:
    """Widths of the queries and of the keys."""
    heads = text.num_attention_heads
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
    return head_dim * heads, head_dim * (getattr(text, "num_key_value_heads", None) or heads)


def estimate_memory(
    config: PretrainedConfig,
    size: Size,
    model_args: ModelConfig,
    args: GRPOConfig,
    sequence_length: int,
    engine: str = "",
    gpu_memory: float = 0,
) -> dict[str, float]:
    """
    GiB on each GPU: the parts, then `"peak of the update"` and `"peak of generation"`.

    `engine` names a file of `accelerate_configs/`, and vLLM takes its share of the `gpu_memory` GiB.
    """
    text = config.get_text_config()
    stage = STAGES.get(engine.removesuffix(".yaml"), 0)
    shared = {level: args.world_size if stage >= level else 1 for level in (1, 2, 3)}
    width, num_layers = text.hidden_size, text.num_hidden_layers
    q, kv = _attention_widths(text)
    mixed = args.bf16 or args.fp16
    weight = 4 if model_args.dtype == "float32" else 2
    compute = 2 if mixed else weight
    trained = 4 if model_args.use_peft else weight
    stream = compute if stage == 3 else weight  # FSDP2 and ZeRO-3 cast the layers' inputs too

    if model_args.load_in_4bit:
        linear = 0.5 + (1.03 if model_args.use_bnb_nested_quant else 4) / 64
    else:
        linear = 1 if model_args.load_in_8bit else weight
    base = size.linear * linear + (size.total - size.linear) * weight
    adapter = size.trained * trained if model_args.use_peft else 0
    copies = 0.0
    if stage == 3:
        copies = (size.total - size.linear + 2 * size.linear / num_layers) * compute
    elif compute < trained:
        copies = size.trained * compute
    states = {"8bit": 2, "sgd": 0}
    state = next((value for name, value in states.items() if name in str(args.optim.value)), 2 * trained)

    tokens = args.per_device_train_batch_size * sequence_length
    layer = tokens * compute * (6 * width + 3 * (q + 2 * kv) + 4 * getattr(text, "intermediate_size", 4 * width))
    activations = num_layers * layer
    if args.gradient_checkpointing:
        activations = num_layers * tokens * width * stream + layer
    loss = min(tokens, TILE[0]) * min(text.vocab_size, TILE[1]) * compute
    if not model_args.use_peft:
        loss += text.vocab_size * width * 4

    parts = {
        "weights": (base + adapter) / shared[3],
        "gradients": size.trained * trained / shared[2],
        "optimizer": size.trained * state / shared[1],
        "copies in the compute type": copies,
        "activations": activations,
        "loss": loss,
    }
    held = parts["weights"] + parts["optimizer"]
    update = sum(parts.values())
    if not args.use_vllm:
        sequences = args.per_device_train_batch_size * args.steps_per_generation
        parts["generation: key-value cache"] = sequences * sequence_length * 2 * num_layers * kv * compute
        held += parts["generation: key-value cache"] + (size.total * compute if stage == 3 else 0)
    elif args.vllm_mode == "colocate":
        parts["generation: vLLM"] = args.vllm_gpu_memory_utilization * gpu_memory * GIB
        held += parts["generation: vLLM"]
        update += 0 if args.vllm_enable_sleep_mode else parts["generation: vLLM"]
    parts |= {"peak of the update": update, "peak of generation": held}
    return {name: value / GIB + (CONTEXT if name.startswith("peak") else 0) for name, value in parts.items()}


def count_vllm_sequences(
    config: PretrainedConfig, size: Size, args: GRPOConfig, sequence_length: int, gpu_memory: float
) -> float:
    """Completions of full length in vLLM's cache: its share of its GPUs less bf16 weights and 2 GiB on each."""
    text = config.get_text_config()
    per_token = 2 * text.num_hidden_layers * _attention_widths(text)[1] * 2
    group = args.vllm_tensor_parallel_size
    cache = group * (args.vllm_gpu_memory_utilization * gpu_memory - 2) * GIB - 2 * size.total
    return cache / (per_token * sequence_length)
