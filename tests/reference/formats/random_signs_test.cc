// Signs beside those that numpy 2.4.6 draws: default_rng(seed + 7919 d), choice among {-1, +1}.

#include "reference/formats/random_signs.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvcheck {
namespace {

struct DrawnSigns {
  int64_t d, seed;
  uint32_t rng_seed;
  Pcg64::Wide state, increment;
  std::vector<uint32_t> words;  // bit i of word w: channel 32 w + i is +
};

const std::vector<DrawnSigns> kDrawnSigns = {
    {32,
     0,
     253408,
     {0xaf1feace9f790646u, 0x3c2a4ad6e486391bu},
     {0x1a3b813102c91839u, 0x8ed1ae3aaef18b3fu},
     {0x26eb0addu}},
    {32,
     1,
     253409,
     {0xb69b5a4353575edcu, 0xd20bb751fed3646fu},
     {0x30349762c612e958u, 0xb5e99e5a82f4824bu},
     {0x033c2498u}},
    {32,
     97,
     253505,
     {0x0a356a8763741dd0u, 0x88fcbd894c9ae7ddu},
     {0x1d9473b7aacb6ebbu, 0xa413c0588a250769u},
     {0xe6ebe9f3u}},
    {32,
     98,
     253506,
     {0x6d595e5dd4153907u, 0x89279dc6c98a36e9u},
     {0xdd0b839e15c50de6u, 0x8eed393cea759387u},
     {0xed37a87au}},
    {64,
     0,
     506816,
     {0x0d4b3151bb0eec9bu, 0xb3880924f3398adbu},
     {0x7da38a743f265df8u, 0x61426b791df763afu},
     {0x3d23b3c0u, 0x601bf8eeu}},
    {64,
     1,
     506817,
     {0x4f1f9704299d4fc6u, 0x74309ce548946ea2u},
     {0x4952415bd615a291u, 0x2f65a98ab87128ffu},
     {0xc5be444eu, 0x5d98147au}},
    {64,
     97,
     506913,
     {0x9d4ca559eaf320b0u, 0xb2539181c1b16f59u},
     {0x8f63337896325401u, 0xbdc90e8ec54b81f1u},
     {0x82a602c6u, 0xf4e48515u}},
    {64,
     98,
     506914,
     {0xb46537343575be6cu, 0x1fa5c847fb945b67u},
     {0x97893d85f4ea2c2eu, 0x58e832c9c0897359u},
     {0x8b95bbb2u, 0x88b4d41eu}},
    {128,
     0,
     1013632,
     {0x2c5c1e561b58ade3u, 0x4f5fad047c59780au},
     {0x59724eb81253d824u, 0xf4bb9e67244a8a09u},
     {0x5eb03210u, 0xc5749d12u, 0x0684a396u, 0x6fae3122u}},
    {128,
     1,
     1013633,
     {0x3c541934bae244bau, 0x976793a91d5c8a02u},
     {0xc4652efddd81e0e3u, 0x6ace518b71438327u},
     {0x12cf26c4u, 0xf7e6b24fu, 0x21ae6846u, 0xe17c560du}},
    {256,
     0,
     2027264,
     {0xb24693baa9db91cfu, 0x7d745d005677c613u},
     {0xf7a5f782c48df270u, 0x810a52c0eb141befu},
     {0xe05422cdu, 0xf23e567du, 0xed27523du, 0x5a9acdcau, 0x22d0370du, 0x10b3a0b8u, 0xf87f105fu,
      0x3efbe5ceu}},
    {256,
     1,
     2027265,
     {0x6332ca675dbcef6cu, 0x190734be2481ab88u},
     {0xf5d6550e6da97ca2u, 0x8995d4d998e711c9u},
     {0xa45beb87u, 0xac6b118eu, 0xeafcb960u, 0x7c1e2f3bu, 0xeac834c2u, 0xac17ef56u, 0xd86514b1u,
      0xe2c2bde9u}},
    {512,
     0,
     4054528,
     {0xa8eb9ca7eb5d38a9u, 0x2550eeda4df5aa2bu},
     {0x79cc3d7c88752533u, 0x1edeaeb886718cf3u},
     {}},
    {512,
     1,
     4054529,
     {0x4af32f79bf02ab05u, 0xe56fa801af31e448u},
     {0x2f9a1954ccff68eau, 0xd5bbce0ea999520du},
     {}},
};

TEST(RandomSigns, AreThoseOfNumpy) {
  int64_t judged = 0;
  for (const DrawnSigns& drawn : kDrawnSigns) {
    const uint32_t seed = TurboquantRngSeed(drawn.seed, drawn.d);
    EXPECT_EQ(seed, drawn.rng_seed);
    const Pcg64 random(seed);
    EXPECT_EQ(random.state(), drawn.state) << drawn.d << " " << drawn.seed;
    EXPECT_EQ(random.increment(), drawn.increment) << drawn.d << " " << drawn.seed;
    const std::vector<float> signs = RandomSigns(seed, drawn.d);
    ASSERT_EQ(static_cast<int64_t>(signs.size()), drawn.d);
    for (size_t i = 0; i < 32 * drawn.words.size(); ++i, ++judged) {
      const bool plus = (drawn.words[i / 32] >> i % 32 & 1) != 0;
      EXPECT_EQ(signs[i], plus ? 1.0f : -1.0f) << drawn.d << " " << drawn.seed << " " << i;
    }
  }
  EXPECT_EQ(judged, 4 * 32 + 4 * 64 + 2 * 128 + 2 * 256);
}

// K and V have seeds of their own.
TEST(RandomSigns, DifferBySeed) {
  EXPECT_NE(RandomSigns(TurboquantRngSeed(0, 128), 128),
            RandomSigns(TurboquantRngSeed(1, 128), 128));
}

}  // namespace
}  // namespace kvcheck
