#!/usr/bin/env python3
"""No exception crosses the C ABI: an exported function of the drop-in libraries is a function try
block, calls everything through guarded<>, or is one of those below, in which nothing throws."""

import re

import tree

NOTHING_THROWS = {
    # reads and frees what is there
    "ibv_free_device_list", "ibv_get_device_name", "ibv_get_device_guid", "ibv_get_device_index",
    "ibv_ack_async_event", "ibv_ack_cq_events", "ibv_query_qp_data_in_order",
    "ibv_fork_init", "ibv_is_fork_initialized", "ibv_get_sysfs_path", "ibv_read_sysfs_file",
    # calls another exported function
    "verbs_open_device",
    # catches in make_device_list, which has a reason for each step
    "ibv_get_device_list",
    # conversions and tables
    "ibv_copy_ah_attr_from_kern", "ibv_copy_qp_attr_from_kern", "ibv_copy_path_rec_from_kern",
    "ibv_copy_path_rec_to_kern", "ibv_rate_to_mult", "mult_to_ibv_rate", "ibv_rate_to_mbps",
    "mbps_to_ibv_rate", "ibv_node_type_str", "ibv_port_state_str", "ibv_event_type_str",
    "ibv_wc_status_str", "ibv_wr_opcode_str",
    # memory of malloc; an error and nothing else; reg_virtual_mr(), which calls through guarded<>
    "ibv_alloc_buf", "ibv_free_buf", "ibv_export_buf_dmabuf_fd", "ibv_dm_export_dmabuf_fd",
    "ibv_alloc_dmah", "ibv_dealloc_dmah", "_ibv_query_comp_cntr_caps", "ibv_create_comp_cntr",
    "ibv_qp_attach_comp_cntr", "ibv_reg_mr_ex", "ibv_reg_buf_mr",
}

DEFINITION = re.compile(r"^VRDMA_EXPORT\b[^;{]*?(\w+)\([^;{]*\)\s*(try)?\s*\{", re.MULTILINE)


def check():
    complaints = []
    seen = set()
    for path in tree.files():
        if not (path.startswith("client/") and path.endswith(".cc")):
            continue
        text = tree.read(path)
        for found in DEFINITION.finditer(text):
            name, guarded = found.groups()
            seen.add(name)
            ends = "\n}" if text[found.end()] == "\n" else "\n"
            body = text[found.end():text.index(ends, found.end() - 1)]
            if not guarded and "guarded<" not in body and name not in NOTHING_THROWS:
                complaints.append(f"{path}: {name} may throw into a C program: use guarded<> or a "
                                  "function try block (client/dial/guard.h)")
    complaints += [f"{name} stands in tests/lint/guards.py and is not exported"
                   for name in sorted(NOTHING_THROWS - seen)]
    return complaints, len(seen)


if __name__ == "__main__":
    found, count = check()
    tree.finish(found, f"{count} exported functions let no exception out")
