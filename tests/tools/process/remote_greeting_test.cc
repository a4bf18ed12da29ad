// What a greeting says about spaces arrives as it was said, each field alone.

#include "tools/process/remote_greeting.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tools/process/wire_message.h"

namespace kvcheck {
namespace {

using nlohmann::json;

Greeting Read(const json& space) {
  const json greeting = {{"protocol", kProtocolVersion},
                         {"name", "mine"},
                         {"version", "1"},
                         {"kinds", {"cache", "attention", "codec"}},
                         {"spaces", json::array({space})}};
  const std::vector<uint8_t> bytes = json::to_msgpack(greeting);
  WireMessage message;
  return ReadGreeting(message.Read(std::as_bytes(std::span(bytes))));
}

std::string Refused(const json& space) {
  try {
    Read(space);
  } catch (const WireError& error) {
    return error.what();
  }
  return "";
}

template <typename S>
struct Flag {
  const char* name;
  bool S::* member;
};

constexpr Flag<CacheSpace> kCacheFlags[] = {
    {"same_format", &CacheSpace::same_format}, {"stored_as_given", &CacheSpace::stored_as_given},
    {"padding", &CacheSpace::padding},         {"same_dims", &CacheSpace::same_dims},
    {"grouped", &CacheSpace::grouped},         {"empty_batch", &CacheSpace::empty_batch},
    {"window", &CacheSpace::window},           {"sinks", &CacheSpace::sinks}};

constexpr Flag<AttentionSpace> kAttentionFlags[] = {
    {"same_format", &AttentionSpace::same_format},
    {"same_dims", &AttentionSpace::same_dims},
    {"grouped", &AttentionSpace::grouped},
    {"lse", &AttentionSpace::lse},
    {"sinks", &AttentionSpace::sinks},
    {"softcap", &AttentionSpace::softcap},
    {"alibi", &AttentionSpace::alibi},
    {"against_original", &AttentionSpace::against_original}};

// Said either way, the flag is as said and nothing else is touched; said as no bool, it is refused.
template <typename S, size_t n>
void ExpectFlags(const Flag<S> (&flags)[n], const char* kind, std::vector<S> Greeting::* spaces) {
  for (const auto& [name, member] : flags) {
    for (const bool said : {true, false}) {
      S wanted;
      wanted.*member = said;
      EXPECT_EQ((Read({{"kind", kind}, {name, said}}).*spaces), std::vector<S>{wanted}) << name;
    }
    EXPECT_EQ((Read({{"kind", kind}, {name, nullptr}}).*spaces), std::vector<S>{S{}}) << name;
    EXPECT_NE(Refused({{"kind", kind}, {name, 1}}).find(std::string("'") + name + "' of a space"),
              std::string::npos);
  }
}

TEST(RemoteGreeting, FlagsOfASpaceOfCachesAreAsSaid) {
  ExpectFlags(kCacheFlags, "cache", &Greeting::cache_spaces);
}

TEST(RemoteGreeting, FlagsOfASpaceOfAttentionAreAsSaid) {
  ExpectFlags(kAttentionFlags, "attention", &Greeting::attention_spaces);
}

TEST(RemoteGreeting, NamesOfASpaceOfCachesAreAsSaid) {
  CacheSpace wanted;
  wanted.layouts = {"ring", "linear:w"};
  wanted.formats = {"f16", "affine:4:*"};
  wanted.pairs = {{AffineFormat{4, 64, DType::kFloat16}, PlainFormat{DType::kFloat16}}};
  wanted.x = {DType::kFloat16};
  wanted.rows = SpaceRows::kBatch;
  wanted.scales_as_given = true;
  wanted.operations =
      1u << static_cast<int>(CacheOpKind::kNew) | 1u << static_cast<int>(CacheOpKind::kAppend);
  wanted.damages = 1u << static_cast<int>(Damage::kFlip);
  const json said = {{"kind", "cache"},
                     {"layouts", {"ring", "linear:w"}},
                     {"formats", {"f16", "affine:4:*"}},
                     {"pairs", {"affine:4:g64:f16 f16"}},
                     {"x", {"f16"}},
                     {"rows", "batch"},
                     {"scales", "x"},
                     {"operations", {"new", "append"}},
                     {"damages", {"flip"}}};
  EXPECT_EQ(Read(said).cache_spaces, std::vector<CacheSpace>{wanted});
  for (const auto& [key, value] : {std::pair<const char*, json>{"rows", "two"},
                                   {"scales", "f16"},
                                   {"x", {"f17"}},
                                   {"operations", {"push"}},
                                   {"damages", {"fire"}}}) {
    json wrong = said;
    wrong[key] = value;
    EXPECT_NE(Refused(wrong).find(std::string("'") + key + "' of a space"), std::string::npos);
  }
  for (const char* pair : {"f16", "f16 f17", " ", "f16 f16 f16"}) {
    json wrong = said;
    wrong["pairs"] = {pair};
    EXPECT_NE(Refused(wrong).find("'pairs'"), std::string::npos) << pair;
  }
}

TEST(RemoteGreeting, SpacesStayInTheirOrderAndKinds) {
  EXPECT_NE(Refused({{"kind", "tensor"}}), "");
  EXPECT_NE(Refused(json::object()), "");
  EXPECT_EQ(Read({{"kind", "codec"}}).codec_spaces.size(), 1u);
  EXPECT_TRUE(Read({{"kind", "codec"}}).cache_spaces.empty());
}

}  // namespace
}  // namespace kvcheck
