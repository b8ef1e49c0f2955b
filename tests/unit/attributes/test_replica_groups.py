"""Replica groups: what the compact forms mean, by hand."""

from hlo.attributes.iota import canonical_iota
from hlo.attributes.mesh import AxisRef, Mesh
from hlo.attributes.replica_groups import IotaGroups, ListGroups, MeshGroups, replica_groups_text


def test_iota_groups_expand_row_by_row() -> None:
    groups = IotaGroups(2, 4, canonical_iota((4, 2), (1, 0)))
    assert groups.groups() == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert replica_groups_text(groups) == "[2,4]<=[4,2]T(1,0)"
    assert replica_groups_text(groups, expanded=True) == "{{0,2,4,6},{1,3,5,7}}"


def test_groups_that_do_not_fit_are_not_expanded() -> None:
    groups = IotaGroups(2, 4, canonical_iota((7,), None))
    assert replica_groups_text(groups, expanded=True) == "[2,4]<=[7]"


def test_mesh_groups_differ_in_the_named_axes_only() -> None:
    mesh = Mesh((("x", 2), ("y", 4)))
    assert MeshGroups(mesh, (AxisRef(0),)).groups() == ((0, 4), (1, 5), (2, 6), (3, 7))
    half = MeshGroups(mesh, (AxisRef(1, 1, 2),))
    assert half.groups() == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert half.members == 2
    assert replica_groups_text(half) == "mesh['x'=2,'y'=4] {'y':(1)2}"


def test_no_groups() -> None:
    assert ListGroups().groups() == ()
    assert replica_groups_text(ListGroups(((0, 1), ()))) == "{{0,1},{}}"
    without_members = IotaGroups(2, 0, canonical_iota((0,), None))
    assert replica_groups_text(without_members, expanded=True) == "{}"
