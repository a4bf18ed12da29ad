// Attention allocates nothing where an earlier call was as large, and where memory runs out it says
// so to its caller. Counts the allocations of its process, and lets one of them fail.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/optimized/attention/stored_sequence.h"

namespace {
std::atomic<int64_t> allocations{0};
std::atomic<int64_t> allocated{0};  // bytes, those that were given back too
std::atomic<int64_t> failing{-1};   // the one that fails, counted as above
}  // namespace

// Inlined, g++ would take the pair for mismatched.
#define KVCHECK_OUT_OF_LINE __attribute__((noinline))
KVCHECK_OUT_OF_LINE void* operator new(size_t size) {
  if (allocations.fetch_add(1) == failing.load()) throw std::bad_alloc();
  allocated.fetch_add(static_cast<int64_t>(size));
  if (void* at = std::malloc(size == 0 ? 1 : size)) return at;
  throw std::bad_alloc();
}
KVCHECK_OUT_OF_LINE void operator delete(void* at) noexcept { std::free(at); }
KVCHECK_OUT_OF_LINE void operator delete(void* at, size_t) noexcept { std::free(at); }

namespace kvcheck {
namespace {

TEST(AttentionAllocations, AreNoneAfterTheFirstCall) {
  for (const char* format :
       {"f16", "affine:3:g32:f16", "affine:4:g64:f32", "q8_0", "hadamard:32:affine:3:g32:f16",
        "turboquant:2.5:g64:hffff0000ffff0000:f16"}) {
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

// K and V are read as they are stored: all that a call allocates is less than a tenth of one copy
// of K in 16 bits, and hardly more for twice the tokens.
TEST(AttentionAllocations, HoldNoCopyOfKOrV) {
  struct Call {
    const char* format;
    int64_t queries;
    Place place;
  };
  // Rows that kernels read as they are, that are unpacked, and that are decoded.
  const Call calls[] = {{"affine:4:g64:f32", 1, Place::kHeadMajor},
                        {"affine:3:g32:f16", 1, Place::kTokenMajor},
                        {"hadamard:64:affine:4:g64:f16", 1, Place::kHeadMajor},
                        {"turboquant:3.5:g64:hffff0000ffff0000:f16", 1, Place::kTokenMajor},
                        {"q4_1", 1, Place::kHeadMajor},
                        {"mxfp4:bf16", 1, Place::kHeadMajor},
                        {"q8_0", 1, Place::kTokenMajor},
                        {"mxfp8:e4m3:f32", 1, Place::kHeadMajor},
                        {"q8_0", 40, Place::kHeadMajor}};
  for (const Call& call : calls) {
    const auto bytes_of = [&](int64_t tokens, int64_t* half_copy) {
      Sequence sequence;
      sequence.shape.query_heads = 8;
      sequence.shape.kv_heads = 8;
      sequence.shape.k_dim = sequence.shape.v_dim = 128;
      sequence.shape.k = sequence.shape.v = ParseKvFormat(WholeLine(call.format));
      sequence.tokens = tokens;
      sequence.queries = call.queries;
      *half_copy = 2 * sequence.shape.kv_heads * sequence.shape.k_dim * tokens;
      Asked asked(sequence, call.place);
      const optimized::SequenceQueries question = asked.Queries();
      optimized::Attention attention;
      const int64_t before = allocated.load();
      attention.Run(sequence.shape, {&question, 1});
      return allocated.load() - before;
    };
    int64_t copy = 0, larger_copy = 0;
    const int64_t few = bytes_of(4096, &copy);
    const int64_t many = bytes_of(8192, &larger_copy);
    EXPECT_GT(few, 0);
    EXPECT_LT(many, larger_copy / 10) << call.format << " " << call.queries;
    EXPECT_LT(many - few, (larger_copy - copy) / 10) << call.format << " " << call.queries;
  }
}

// Which way a block goes depends on what its queries see of it; the memory does not.
TEST(AttentionAllocations, AreNoneAfterACallUnderAnotherMask) {
  for (const char* format :
       {"f32", "f16", "affine:8:g64:f16", "affine:4:g32:f32", "q8_0",
        "hadamard:32:affine:3:g32:f16", "turboquant:2.5:g64:hffff0000ffff0000:f16"}) {
    for (const Place place : {Place::kHeadMajor, Place::kTokenMajor}) {
      Sequence sequence;
      sequence.shape.query_heads = 8;
      sequence.shape.kv_heads = 4;
      sequence.shape.k = sequence.shape.v = ParseKvFormat(WholeLine(format));
      sequence.tokens = 300;
      sequence.queries = 40;
      sequence.bits_for_all = true;
      Sequence with_holes = sequence;
      with_holes.holes = 0.3;
      Asked asked[] = {{sequence, place}, {with_holes, place}};
      for (const size_t first : {size_t{0}, size_t{1}}) {
        const optimized::SequenceQueries before = asked[first].Queries();
        const optimized::SequenceQueries after = asked[1 - first].Queries();
        optimized::Attention attention;
        attention.Run(sequence.shape, {&before, 1});
        const int64_t counted = allocations.load();
        attention.Run(sequence.shape, {&after, 1});
        EXPECT_EQ(allocations.load() - counted, 0)
            << format << " " << Name(place) << " holes first: " << first;
      }
    }
  }
}

// Whether `work` lacked memory where allocation `index` of it fails.
template <typename Work>
bool LacksMemory(int64_t index, const Work& work) {
  failing.store(allocations.load() + index);
  bool lacks = false;
  try {
    work();
  } catch (const std::bad_alloc&) {
    lacks = true;
  }
  failing.store(-1);
  return lacks;
}

// Whichever allocation fails, also those of threads beside the caller's.
TEST(AttentionAllocations, ThatFailAreThrownToTheCaller) {
  Sequence sequence;
  sequence.shape.query_heads = 8;
  sequence.shape.kv_heads = 2;
  sequence.shape.k = ParseKvFormat(WholeLine("affine:3:g32:f16"));
  sequence.tokens = 130;
  sequence.bias = true;
  for (const int64_t queries : {1, 40}) {
    sequence.queries = queries;
    const std::vector<uint32_t> want = Solve(sequence, Place::kTokenMajor);
    for (const int threads : {1, 3}) {
      int64_t failures = 0;
      bool lacks = true;
      for (int64_t index = 0; lacks; ++index) {
        Asked asked(sequence, Place::kTokenMajor);
        const optimized::SequenceQueries question = asked.Queries();
        optimized::Attention attention(threads);
        lacks = LacksMemory(index, [&] { attention.Run(sequence.shape, {&question, 1}); });
        failures += lacks ? 1 : 0;
        attention.Run(sequence.shape, {&question, 1});
        ASSERT_EQ(asked.Answers(), want) << "after allocation " << index << " failed";
      }
      EXPECT_GT(failures, 3);
    }
  }
}

// What was made of a pool of threads is taken back: a thread that is left would end the process.
TEST(AttentionAllocations, ThatFailWhileThreadsAreMadeLeaveNone) {
  int64_t failures = 0;
  for (bool lacks = true; lacks; failures += lacks ? 1 : 0) {
    lacks = LacksMemory(failures, [] { const optimized::Attention attention(5); });
  }
  EXPECT_GE(failures, 6);
}

}  // namespace
}  // namespace kvcheck
