"""Who goes first: Slurm's multifactor priority, fair share being Fair Tree, Slurm's default."""

from __future__ import annotations

from config.cluster import ClusterConfig


def priority_settings(config: ClusterConfig) -> dict[str, str]:
    """Keys of slurm.conf for `slurmstack:priority`; none without accounting, where nobody knows who used what."""
    if not config.accounting.enabled:
        return {}
    priority = config.priority
    weights = priority.weights
    return {
        "PriorityType": "priority/multifactor",
        "PriorityWeightFairshare": str(weights.fairshare),
        "PriorityWeightQOS": str(weights.qos),
        "PriorityWeightPartition": str(weights.partition),
        "PriorityWeightAge": str(weights.age),
        "PriorityWeightJobSize": str(weights.job_size),
        "PriorityWeightAssoc": str(weights.association),
        **({"PriorityWeightTRES": _tres(weights.tres)} if weights.tres else {}),
        "PriorityDecayHalfLife": priority.decay_half_life,
        "PriorityUsageResetPeriod": priority.usage_reset_period,
        "PriorityMaxAge": priority.max_age,
        "PriorityCalcPeriod": str(priority.calc_period),
        "PriorityFavorSmall": "YES" if priority.favor_small else "NO",
    }


def _tres(weights: dict[str, int]) -> str:
    return ",".join(f"{name}={weight}" for name, weight in weights.items())
