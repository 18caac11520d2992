"""A model folder for tests, made in seconds."""

from experiments.base_model import make_base_folder


def make_small_folder(folder, *, text, vision, max_tokens):
    """Writes fresh parameters that read two environments; sizes differ as given."""
    text = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "mrope_section": (4, 2, 2),
        "max_position_embeddings": 512,
    } | text
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_heads": 2,
        "num_position_embeddings": 36,
        "deepstack_visual_indexes": (0,),
    } | vision
    make_base_folder(
        folder,
        {"count_objects": 2, "lights_out": 2},
        seed=0,
        frame_px=96,
        text=text,
        vision=vision,
        max_tokens=max_tokens,
        text_episodes=4,
    )
    return folder
