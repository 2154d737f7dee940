"""The only code that imports pyopencl.

    devices   select describe checks   which devices there are, which one is meant, what each can do, what is broken
    runtime   counters                 one device's context and queues, and the things made on them
    programs  store cachefolder pocl   compiling once, and keeping binaries between processes
    memory    subbuffers pools weights transfer tensor
    launch    rawcalls replay events   enqueueing with everything settled beforehand
    step_loop host_loop                many launches as one, for devices that wake threads for each
    failures                           driver errors as sentences
    scratch limits linker link_elf     what PoCL needs of a machine: folders, room, a linker
    advice                             what to install where nothing is found

select, store, cachefolder, pools, weights and counters need no OpenCL.
"""
