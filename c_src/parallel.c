/* A parallel-for over independent outputs.
 *
 * One pool for the process: threads start with the first large job and sleep on a condition variable between jobs, so that they take
 * nothing from another library's threads. Before they fall asleep they look for the next job for some 20 microseconds, which is what
 * lies between the layers of a network: to wake one takes as long as a small layer's work. The cut of a range depends on its length and the number of threads alone, and since
 * every item writes its own outputs, no bit depends on either. A second job that arrives while the pool works runs on its caller's
 * thread. After a fork the child starts a pool of its own. */
#define _GNU_SOURCE 1 /* sched_getaffinity */
#include "internal.h"

#include <pthread.h>
#include <stdatomic.h>
#if defined(__linux__)
#include <sched.h>
#endif
#include <unistd.h>

enum { SMALL_JOB = 1 << 15, LOOKS = 1500 }; /* looks: a pause of the processor takes some 40 cycles */

typedef struct {
    parallel_body body;
    void *context;
    size_t count, pieces;
    int flush; /* denormals, as the calling thread has it */
} job;

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    job job;
    atomic_size_t generation; /* counts jobs; a worker that sees a new one takes its piece */
    atomic_size_t running;    /* workers that have not finished the present job */
    size_t workers;           /* started ones */
    size_t wanted;            /* threads, the caller included; 0: not set yet */
    int busy;
    atomic_int crowded; /* more threads than processors: who looks for a job keeps another from its work */
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static size_t available_processors(void) {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return (size_t)CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (size_t)n : 1;
}

static size_t clamp_threads(size_t n) {
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

static void run_piece(const job *j, size_t piece) {
    size_t share = j->count / j->pieces, rest = j->count % j->pieces;
    size_t begin = piece * share + (piece < rest ? piece : rest);
    size_t end = begin + share + (piece < rest);
    if (begin < end) j->body(j->context, begin, end, piece);
}

static void pause_shortly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* Looks for a while whether the number is another one. */
static void await_change(atomic_size_t *number, size_t from) {
    int looks = pool.crowded ? 0 : LOOKS;
    while (looks-- > 0 && atomic_load_explicit(number, memory_order_acquire) == from) pause_shortly();
}

/* Looks for a while whether it is 0. */
static void await_zero(atomic_size_t *number) {
    int looks = pool.crowded ? 0 : LOOKS;
    while (looks-- > 0 && atomic_load_explicit(number, memory_order_acquire)) pause_shortly();
}

static void *work(void *argument) {
    size_t piece = (size_t)argument;
    size_t seen = 0;
    for (;;) {
        await_change(&pool.generation, seen);
        pthread_mutex_lock(&pool.mutex);
        while (pool.generation == seen) pthread_cond_wait(&pool.wake, &pool.mutex);
        seen = pool.generation;
        job j = pool.job;
        pthread_mutex_unlock(&pool.mutex);
        if (piece >= j.pieces) continue;
        enter_float_mode(j.flush);
        run_piece(&j, piece);
        pthread_mutex_lock(&pool.mutex);
        if (--pool.running == 0) pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.mutex);
    }
    return NULL;
}

static void reset_in_child(void) {
    /* the parent's workers do not exist here, and a lock may have been held by one of them */
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.workers = 0;
    atomic_store(&pool.running, 0);
    atomic_store(&pool.generation, 0);
    pool.busy = 0;
}

static void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, reset_in_child);
}

/* A fork that meets the first lock is watched too. */
static void lock_pool(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&pool.mutex);
}

/* Called with the mutex held. */
static void start_workers(size_t n) {
    while (pool.workers < n) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)(pool.workers + 1)) != 0) return;
        pthread_detach(thread);
        ++pool.workers;
        pool.crowded = pool.workers + 1 > available_processors();
    }
}

size_t get_num_threads(void) {
    lock_pool();
    if (!pool.wanted) pool.wanted = clamp_threads(available_processors());
    size_t n = pool.wanted;
    pthread_mutex_unlock(&pool.mutex);
    return n;
}

void set_num_threads(size_t n) {
    lock_pool();
    pool.wanted = clamp_threads(n);
    pthread_mutex_unlock(&pool.mutex);
}

void parallel_for(size_t count, size_t work_of_item, parallel_body body, void *context) {
    parallel_for_on(get_num_threads(), count, work_of_item, body, context);
}

static void parallel_for_in_mode(size_t threads, size_t count, size_t work_of_item, parallel_body body, void *context) {
    job j = {body, context, count, threads, get_flush_denormals()};
    int small = work_of_item < SMALL_JOB && count * work_of_item < SMALL_JOB;
    if (j.pieces > count) j.pieces = count;
    if (j.pieces < 2 || small) {
        if (count) body(context, 0, count, 0);
        return;
    }
    lock_pool();
    int mine = !pool.busy;
    if (mine) {
        start_workers(j.pieces - 1);
        if (j.pieces > pool.workers + 1) j.pieces = pool.workers + 1;
        pool.busy = 1;
        pool.job = j;
        pool.running = j.pieces - 1;
        ++pool.generation;
        pthread_cond_broadcast(&pool.wake);
    }
    pthread_mutex_unlock(&pool.mutex);
    if (!mine) {
        body(context, 0, count, 0);
        return;
    }
    run_piece(&j, 0);
    await_zero(&pool.running);
    pthread_mutex_lock(&pool.mutex);
    while (pool.running) pthread_cond_wait(&pool.done, &pool.mutex);
    pool.busy = 0;
    pthread_mutex_unlock(&pool.mutex);
}

void parallel_for_on(size_t threads, size_t count, size_t work_of_item, parallel_body body, void *context) {
    size_t before = enter_float_mode(get_flush_denormals());
    parallel_for_in_mode(threads, count, work_of_item, body, context);
    leave_float_mode(before);
}
