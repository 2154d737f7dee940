"""OpenCL through pyopencl, which only this folder imports.

    devices   select describe checks   which devices there are, which one is meant, what each can do, what is broken
    runtime   counters                 one device's context and queues, and the things made on them
    hints     opening                  what the driver is asked for: clocks, priority
    programs  compile_source build_pool build_worker bare builders priority   compiling once, binaries between processes
    memory    subbuffers pools weights transfer tensor
    launch    rawcalls events          enqueueing with everything settled beforehand
    replays   replay command_buffers recordable_queues   launches recorded, and enqueued by one call
    handles                            the driver's objects, by name
    beside_runs                        room for runs while something is planned or built
    failures                           driver errors as sentences
    advice                             what to install where nothing is found

select, hints, pools, weights, counters, beside_runs and advice need no OpenCL.
"""
