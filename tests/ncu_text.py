"""Output of ncu, written for the purpose, in the form of `ncu --csv --page raw --print-units base`."""

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC"'
)
IDENTITY = '"{id}","7","python3.11","host","{kernel}","1","7","(256, 1, 1)","(8, 1, 1)","0","9.0"'
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum", "dram__sectors_read.sum", "dram__sectors_write.sum")
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"


def csv_of(metrics, rows, passes=1):
    lines = ["==PROF== Connected to process 7 (/python)"]
    lines += [
        f'==PROF== Profiling "{kernel}" - {n}: 0%....50%....100% - {passes} passes'
        for n, (kernel, _) in enumerate(rows)
    ]
    lines += ["==PROF== Disconnected from process 7"]
    lines.append(HEAD + "".join(f',"{name}"' for name in metrics))
    lines.append(
        ",".join(['""'] * 11)
        + "".join(',"byte"' if "bytes" in m else ',"sector"' if "sectors" in m else ',"inst"' for m in metrics)
    )
    for number, (kernel, values) in enumerate(rows):
        lines.append(IDENTITY.format(id=number, kernel=kernel) + "".join(f',"{value}"' for value in values))
    return "\n".join(lines) + "\n"
