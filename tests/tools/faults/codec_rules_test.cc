// Without a replaced step the faulty codec is the reference codec, bit for bit; so that what a
// fault shows is the fault.

#include "tools/faults/codec_rules.h"

#include <gtest/gtest.h>

#include "reference/formats/generate_inputs.h"
#include "reference/spec/kv_format.h"
#include "tools/campaign/plain_answers.h"
#include "tools/corridor/implementations.h"

namespace kvcheck {
namespace {

TEST(FaultyCodec, WithoutAReplacedStepIsTheReferenceCodec) {
  int64_t compared = 0;
  for (const char* profile_text : {"", "encode=mlx_gpu decode=two_roundings", "encode=kivi",
                                   "decode=one_rounding fp8_overflow=saturate_all"}) {
    const Profile profile = ParseProfile(profile_text);
    for (const KvFormat& format : AllKvFormats()) {
      for (const CodecDirection direction :
           {CodecDirection::kEncode, CodecDirection::kDecode, CodecDirection::kRoundTrip}) {
        for (const char* regime : {"gauss", "mixed", "ties"}) {
          CodecCase c;
          c.direction = direction;
          c.format = format;
          c.rows = 3;
          c.head_dim = 256;
          c.data.regime = direction == CodecDirection::kDecode ? "codes" : regime;
          c.data.seed = 5;
          const TensorMap inputs = GenerateInputs(Case(c), profile);
          MemorySink right, same;
          ReferenceCodec(profile).Run(c, inputs, right);
          // A step that is there and changes nothing, so that decoding takes the long way too.
          CodecRules rules;
          rules.group_of = [](int64_t channel, int64_t group, int64_t) { return channel / group; };
          ASSERT_EQ(FaultyCodec(rules, profile).Run(c, inputs, same), RunOutcome::kAnswered);
          EXPECT_EQ(DifferentElements(same, right), 0) << Print(Case(c)) << " " << profile_text;
          ++compared;
        }
      }
    }
  }
  EXPECT_EQ(compared, 4 * 9 * std::ssize(AllKvFormats()));
}

}  // namespace
}  // namespace kvcheck
