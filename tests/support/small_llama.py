"""A random Llama with a tokenizer of words, in memory and as a GGUF file."""

import tokenizers
import torch
import transformers

WORDS = [f"w{number}" for number in range(50)]


def word_tokenizer():
    """One token a word: a real tokenizer without any training."""
    vocabulary = {word: number for number, word in enumerate(["[UNK]", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


def llama(**changes):
    """A random Llama with grouped keys; weights wide enough that attention is far from uniform."""
    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.4,
    }
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = transformers.LlamaConfig(**(sizes | changes), attn_implementation="eager")
        model = transformers.LlamaForCausalLM(config).eval()
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.data.uniform_(0.5, 1.5)
    return model


def interleaved(weight, heads):
    """Rows of a query or key map as GGUF files hold them: the two halves of a head's channels in turn."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def write_gguf(model, path, merge='" #'):
    """Write a Llama to a GGUF file, in float32, with a byte-pair tokenizer of single characters."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*map(chr, range(33, 32 + config.vocab_size)), '"#'])
    writer.add_token_merges([merge])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    names = {"self_attn.": "attn_", "mlp.": "ffn_", "_proj": "", "attn_o.": "attn_output."}
    names |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    names |= {"model.layers.": "blk.", "model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    for name, weight in model.state_dict().items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        heads = {"attn_q.": config.num_attention_heads, "attn_k.": config.num_key_value_heads}
        for part, number in heads.items():
            if part in name:
                weight = interleaved(weight, number)
        writer.add_tensor(name.replace("lm_head", "output"), weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
