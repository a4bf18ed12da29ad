// Attention allocates nothing where an earlier call was as large. Counts the allocations of its
// process.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/optimized/attention/stored_sequence.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// Inlined, g++ would take the pair for mismatched.
#define KVCHECK_OUT_OF_LINE __attribute__((noinline))
KVCHECK_OUT_OF_LINE void* operator new(size_t size) {
  allocations.fetch_add(1);
  if (void* at = std::malloc(size == 0 ? 1 : size)) return at;
  throw std::bad_alloc();
}
KVCHECK_OUT_OF_LINE void operator delete(void* at) noexcept { std::free(at); }
KVCHECK_OUT_OF_LINE void operator delete(void* at, size_t) noexcept { std::free(at); }

namespace kvcheck {
namespace {

TEST(AttentionAllocations, AreNoneAfterTheFirstCall) {
  for (const char* format : {"f16", "affine:3:g32:f16", "affine:4:g64:f32"}) {
    for (const int64_t queries : {1, 40}) {
      for (const Place place : kPlaces) {
        Sequence sequence;
        sequence.shape.query_heads = 8;
        sequence.shape.kv_heads = 2;
        sequence.shape.k = sequence.shape.v = ParseKvFormat(WholeLine(format));
        sequence.tokens = 2100;
        sequence.queries = queries;
        sequence.bias = true;
        Asked asked(sequence, place);
        const optimized::SequenceQueries question = asked.Queries();
        // One thread: which of several takes its first piece when is chance.
        optimized::Attention attention;
        attention.Run(sequence.shape, {&question, 1});
        const int64_t before = allocations.load();
        EXPECT_GT(before, 0);
        attention.Run(sequence.shape, {&question, 1});
        EXPECT_EQ(allocations.load() - before, 0) << Describe(sequence) << " " << Name(place);
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
