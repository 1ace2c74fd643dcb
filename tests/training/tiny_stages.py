"""Parameters of a training of six steps by the real stage, for each objective."""

TRAIN = {
    "queries_per_batch": 4,
    "list_size": 4,
    "epochs": 1.0,
    "steps": 6,
    "lr": 1e-3,
    "optimizer": "adamw",
    "weight_decay": 0.01,
    "warmup": 0.2,
    "schedule": "linear",
    "clip": 1.0,
    "dropout": 0.1,
    "precision": "fp32",
    "seed": 5,
    "choose": "dev",
    "patience": None,
    "validate_every": 2,
    "validation_queries": 10,
    "validation_depth": 5,
}
JOINT = {"semantics": "paper", "teacher": "dynamic", "supervision": "listwise", "in_batch": False}
OBJECTIVES = {
    "dual": TRAIN | {"in_batch": True, "loss": "listwise"},
    "cross": TRAIN | {"loss": "listwise", "choose": "last"},
    "joint": TRAIN | JOINT,
}
TOWERS = {"shared": True, "pooling": "mean", "normalize": False, "temperature": 1.0}
