"""The unseen test: its statistic, its strata, its interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gnndelete.metrics.ranking import auc_variance
from gnndelete.metrics.unseen_test import (
    STRATUM_MINIMUM,
    UnseenTest,
    degrees,
    edge_strata,
    spread_of_trainings,
    strata,
    unseen_test,
)


def test_a_difference_in_degree_is_not_mistaken_for_memory():
    """Scores follow the degree alone, and deleted elements have higher degrees: only the plain AUC sees a difference."""
    generator = torch.Generator().manual_seed(0)
    degrees = torch.randint(1, 40, (4000,), generator=generator), torch.randint(1, 20, (4000,), generator=generator)
    scores = [degree.float() + torch.randn(4000, generator=generator) for degree in degrees]
    test = unseen_test(*scores, *degrees, bins=30)
    assert test.plain_auc > 0.7
    assert abs(test.auc - 0.5) < 0.03


def test_memory_within_a_stratum_is_seen():
    generator = torch.Generator().manual_seed(0)
    degree = torch.randint(1, 9, (3000,), generator=generator)
    noise = torch.randn(2, 3000, generator=generator)
    test = unseen_test(noise[0] + 0.5, noise[1], degree, degree)
    assert test.auc == pytest.approx(0.638, abs=0.02)  # the normal distribution function at 0.5 / sqrt(2)
    assert test.matched == 1


def test_kinds_are_compared_among_themselves():
    """Two classes with very different scores, and more of the high one among the deleted."""
    generator = torch.Generator().manual_seed(0)
    kinds = torch.arange(1000) % 4 > 0, torch.arange(1000) % 4 == 0
    scores = [10.0 * kind + torch.randn(1000, generator=generator) for kind in kinds]
    ones = torch.ones(1000)
    assert unseen_test(*scores, ones, ones).auc > 0.65
    assert abs(unseen_test(*scores, ones, ones, *(kind.long() for kind in kinds)).auc - 0.5) < 0.04


def test_a_request_too_small_for_strata_is_compared_with_all():
    test = unseen_test(torch.tensor([5.0]), torch.arange(10.0), torch.tensor([1.0]), torch.arange(10.0))
    assert test.auc == 0.55
    assert test.standard_error > 0.25
    assert (test.deleted, test.unseen, test.matched) == (1, 10, 1.0)


def test_elements_without_a_counterpart_are_left_out_and_counted():
    degrees = torch.cat([torch.ones(50), torch.full((50,), 99.0)]), torch.ones(50 + STRATUM_MINIMUM)
    test = unseen_test(torch.zeros(100), torch.zeros(50 + STRATUM_MINIMUM), *degrees)
    assert test.matched == 0.5
    assert test.auc == 0.5


@pytest.mark.parametrize("count", [5, 20, 40, 60, 80, 100, 200])
def test_more_deleted_elements_leave_no_fewer_compared(count):
    """Ten classes by three degrees are never all filled by sixty nodes: classes are then divided less, not left out."""
    generator = torch.Generator().manual_seed(count)
    kinds, degree = [torch.randint(high, (count + 600,), generator=generator) for high in (10, 50)]
    mine, theirs = slice(count), slice(count, None)
    found = strata(degree[mine], degree[theirs], kinds[mine], kinds[theirs], bins=3, adaptive=True)
    assert sorted(np.concatenate([own for own, _ in found])) == list(range(count)), "each of them once"
    for own, others in found:
        assert len(set(kinds[mine][own].tolist()) | set(kinds[theirs][others].tolist())) == 1
        assert others.size >= 6
    divided = [own.size for own, _ in found]
    assert len(divided) > 10 or count < 120, "and where there are enough, by degree as well"


def test_few_edges_are_divided_by_degree_as_far_as_they_go():
    degree = torch.randint(100, (600,), generator=torch.Generator().manual_seed(0))
    sizes = {}
    for count in (10, 30, 60, 95, 96):
        found = strata(degree[:count], degree[count:])
        sizes[count] = len(found)
        if count < 96:
            assert sum(mine.size for mine, _ in found) == count
    assert sizes[10] == 1
    assert sizes[30] < sizes[60] <= sizes[95] <= 8


def test_held_out_elements_count_by_how_many_deleted_ones_they_stand_beside():
    alike = torch.arange(100).repeat(3).float(), torch.arange(100).repeat(4).float()
    test = unseen_test(torch.zeros(300), torch.zeros(400), *alike, bins=4)
    assert len(test.parts) == 4
    assert test.effective_unseen == pytest.approx(400)
    kinds = torch.tensor([0] * 290 + [1] * 10), torch.tensor([0] * STRATUM_MINIMUM + [1] * 394)
    test = unseen_test(torch.zeros(300), torch.zeros(400), torch.ones(300), torch.ones(400), *kinds)
    assert STRATUM_MINIMUM <= test.effective_unseen < STRATUM_MINIMUM + 1


def test_the_standard_error_and_the_interval_agree_with_many_samples():
    generator = torch.Generator().manual_seed(1)
    draws = []
    for _ in range(200):
        deleted, held = torch.randn(60, generator=generator), torch.randn(90, generator=generator)
        test = unseen_test(deleted, held, torch.ones(60), torch.ones(90))
        draws.append(test.auc)
    assert test.standard_error == pytest.approx(np.std(draws), rel=0.2)
    low, high = test.interval(seed=0)
    assert (high - low) / 2 == pytest.approx(1.96 * test.standard_error, rel=0.3)
    assert low < test.auc < high
    assert test.interval(seed=0) == (low, high)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = torch.Generator().manual_seed(2)
    hits = 0
    for seed in range(100):
        parts = torch.randn(50, generator=generator), torch.randn(80, generator=generator)
        low, high = unseen_test(*parts, torch.ones(50), torch.ones(80)).interval(seed, draws=300)
        hits += low <= 0.5 <= high
    assert 88 <= hits <= 100


def test_the_error_of_a_difference_fits_two_models_that_see_the_same_elements():
    """Half of each score is the element's own, half the model's: the difference scatters less than two AUCs apart."""
    generator = torch.Generator().manual_seed(3)
    ones, found, errors = (torch.ones(80), torch.ones(120)), [], []
    for _ in range(200):
        own = [torch.randn(size, generator=generator) for size in (80, 120)]
        tests = [
            unseen_test(*(part + torch.randn(part.shape, generator=generator) for part in own), *ones) for _ in "ab"
        ]
        difference, error = tests[0].against(tests[1])
        assert difference == pytest.approx(tests[0].auc - tests[1].auc)
        found.append(difference)
        errors.append(error)
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.15)
    assert np.mean(errors) < 0.9 * np.sqrt(2) * tests[0].standard_error
    assert tests[0].against(tests[0]) == (0.0, 0.0)


def test_a_kind_of_few_held_out_elements_takes_part_in_a_small_request():
    """Two elements of another kind would else speak for all sixty."""
    kinds = torch.tensor([0] * 58 + [1] * 2), torch.tensor([0] * 5 + [1] * 45)
    found = strata(torch.rand(60), torch.rand(50), *kinds)
    assert sorted((mine.size, theirs.size) for mine, theirs in found) == [(2, 45), (58, 5)]
    missing = strata(torch.rand(60), torch.rand(45), kinds[0], torch.ones(45))
    assert [(mine.size, theirs.size) for mine, theirs in missing] == [(2, 45)]


def test_one_element_has_an_interval_that_says_nothing():
    low, high = unseen_test(torch.tensor([4.0]), torch.arange(90.0), torch.ones(1), torch.ones(90)).interval(0)
    assert (low, high) == (0.0, pytest.approx(0.6, abs=0.1))
    assert auc_variance(0.5, 40, 60) == pytest.approx(101 / (12 * 40 * 60))


def test_the_degree_of_an_edge_grows_with_both_ends():
    degree = torch.tensor([0, 3, 15])
    edges = torch.tensor([[0, 1, 1], [0, 1, 2]])
    assert edge_strata(degree, edges, edges)["degree_deleted"].exp2().log2().tolist() == pytest.approx(
        np.log([1, 4, 8]).tolist()
    )


def test_an_end_with_incoming_edges_alone_is_not_lonely():
    data = Data(edge_index=torch.tensor([[1, 2, 3, 0], [0, 0, 0, 4]]), num_nodes=6)
    edges = torch.tensor([[1, 1], [4, 5]])
    assert edge_strata(degrees(data), edges, edges)["kind_deleted"].tolist() == [0, 1]
    both = Data(edge_index=torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1), num_nodes=6)
    assert torch.equal(degrees(both), torch.bincount(both.edge_index[0], minlength=6).double())


def test_beside_several_models_the_error_is_that_of_trainings_where_these_differ_more() -> None:
    generator = torch.Generator().manual_seed(0)
    unseen = torch.randn(2000, generator=generator)
    deleted = torch.randn(2000, generator=generator)
    everyone = [(np.arange(2000), np.arange(2000))]
    after = UnseenTest(everyone, deleted, unseen)
    others = [UnseenTest(everyone, deleted + shift, unseen) for shift in (-0.3, 0.0, 0.3)]
    off, error = after.against(*others)
    assert off == pytest.approx(after.auc - np.mean([other.auc for other in others]))
    assert error == pytest.approx(spread_of_trainings([other.auc for other in others]))
    assert error > 3 * after.against(others[0])[1]


def test_pairs_that_share_a_node_err_alike() -> None:
    """Twenty deleted pairs at each of ten nodes, of which each model has its own opinion: that is ten draws and not 200."""
    generator = torch.Generator().manual_seed(0)
    hub = torch.arange(10).repeat_interleave(20)
    ends = torch.stack([hub, torch.arange(100, 300)]), torch.stack([torch.arange(300, 700), torch.arange(700, 1100)])
    everyone = [(np.arange(200), np.arange(400))]

    def model(**rest: Any) -> UnseenTest:
        of_hub = torch.randn(10, generator=generator)[hub]
        return UnseenTest(
            everyone,
            of_hub + 0.1 * torch.randn(200, generator=generator),
            torch.randn(400, generator=generator),
            **rest,
        )

    found = [model(ends=ends).against(model(ends=ends)) for _ in range(60)]
    single = [model().against(model()) for _ in range(60)]
    assert 0.6 < np.std([off / error for off, error in found]) < 1.4
    assert np.std([off / error for off, error in single]) > 2
