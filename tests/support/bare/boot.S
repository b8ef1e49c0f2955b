/* From a multiboot loader's 32 bits to bare_main in 64, with the vector state that the processor
   has, addresses as they are, and nothing else: no interrupts, no system. */
        .set MAGIC, 0x1BADB002
        .set FLAGS, 3                   /* modules at page boundaries, a map of memory */
        .section .multiboot, "a"
        .balign 4
        .long MAGIC, FLAGS, -(MAGIC + FLAGS)

        .text
        .code32
        .global _start
_start: cli
        movl    $stack_end, %esp
        /* The lowest 4 GiB in pages of 2 MiB. */
        movl    $level3, %eax
        orl     $3, %eax
        movl    %eax, level4
        movl    $level2, %eax
        orl     $3, %eax
        movl    $level3, %edi
        movl    $4, %ecx
1:      movl    %eax, (%edi)
        addl    $8, %edi
        addl    $4096, %eax
        loop    1b
        movl    $0x83, %eax
        movl    $level2, %edi
        movl    $2048, %ecx
2:      movl    %eax, (%edi)
        addl    $8, %edi
        addl    $0x200000, %eax
        loop    2b
        movl    $level4, %eax
        movl    %eax, %cr3
        movl    %cr4, %eax
        orl     $0x40620, %eax          /* PAE, OSFXSR, OSXMMEXCPT, OSXSAVE */
        movl    %eax, %cr4
        movl    $0xC0000080, %ecx       /* EFER: long mode, syscall */
        rdmsr
        orl     $0x101, %eax
        wrmsr
        movl    %cr0, %eax
        andl    $0x9ffffff3, %eax       /* caches, no emulation of the FPU */
        orl     $0x80000022, %eax       /* paging, errors of the FPU as exceptions */
        movl    %eax, %cr0
        lgdt    gdt_register
        ljmp    $8, $long

        .code64
long:   movw    $16, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        /* Of x87, SSE, AVX, AVX-512 and AMX what the processor has. */
        movl    $0xd, %eax
        xorl    %ecx, %ecx
        cpuid
        andl    $0x600e7, %eax
        xorl    %ecx, %ecx
        xorl    %edx, %edx
        xsetbv
        movq    $stack_end, %rsp
        /* A kernel asks Linux for AMX by its system call, which is granted. */
        movl    $0xC0000081, %ecx       /* STAR: the segments that there are */
        xorl    %eax, %eax
        movl    $8, %edx
        wrmsr
        movl    $0xC0000082, %ecx       /* LSTAR */
        movl    $granted, %eax
        xorl    %edx, %edx
        wrmsr
        movl    $0xC0000084, %ecx       /* SFMASK: flags stay */
        xorl    %eax, %eax
        wrmsr
        lidt    idt_register
        call    bare_main
3:      hlt
        jmp     3b

granted:
        xorl    %eax, %eax
        jmp     *%rcx

        /* An exception is told with its number and the words that the processor has pushed. */
        .altmacro
        .macro  entry number
vector\number:
        pushq   $\number
        jmp     told
        .endm
        .set    n, 0
        .rept   32
        entry   %n
        .set    n, n + 1
        .endr
told:   movq    (%rsp), %rdi
        movq    8(%rsp), %rsi
        movq    16(%rsp), %rdx
        andq    $-64, %rsp
        call    bare_fault
4:      hlt
        jmp     4b

        .data
        .balign 16
gdt:    .quad   0, 0x00af9a000000ffff, 0x00cf92000000ffff
gdt_register:
        .word   23
        .quad   gdt
idt_register:
        .word   32 * 16 - 1
        .quad   bare_gates
        .global bare_vectors
bare_vectors:
        .macro  address number
        .quad   vector\number
        .endm
        .set    n, 0
        .rept   32
        address %n
        .set    n, n + 1
        .endr

        .bss
        .balign 4096
level4: .skip   4096
level3: .skip   4096
level2: .skip   4 * 4096
        .skip   1 << 20
stack_end:
        .section .note.GNU-stack, "", @progbits
