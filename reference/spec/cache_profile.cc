#include "reference/spec/cache_profile.h"

#include "reference/spec/enum_text.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

constexpr EnumNames<SizeRule, 3> kSizes = {
    {{SizeRule::kTokens, "tokens"}, {SizeRule::kColumns, "columns"}, {SizeRule::kAny, "any"}}};
constexpr EnumNames<BytesRule, 3> kBytes = {
    {{BytesRule::kLive, "live"}, {BytesRule::kCapacity, "capacity"}, {BytesRule::kAny, "any"}}};
constexpr EnumNames<bool, 2> kAny = {{{false, "contract"}, {true, "any"}}};
constexpr EnumNames<TrimRule, 2> kTrims = {
    {{TrimRule::kLongest, "longest"}, {TrimRule::kShorter, "shorter"}}};
constexpr EnumNames<RegroupRule, 3> kRegroups = {
    {{RegroupRule::kNever, "never"}, {RegroupRule::kAll, "all"}, {RegroupRule::kOpen, "open"}}};
constexpr EnumNames<bool, 2> kReads = {{{false, "after"}, {true, "before"}}};

}  // namespace

std::string Print(const CacheProfile& profile) {
  std::string text;
  const auto add = [&text](std::string_view key, std::string_view value) {
    text += (text.empty() ? "" : " ") + std::string(key) + "=" + std::string(value);
  };
  if (profile.size != SizeRule::kTokens) add("size", NameIn(kSizes, profile.size));
  if (profile.bytes != BytesRule::kLive) add("bytes", NameIn(kBytes, profile.bytes));
  if (profile.any_empty) add("empty", "any");
  if (profile.any_trimmable) add("trimmable", "any");
  if (profile.trim != TrimRule::kLongest) add("trim", NameIn(kTrims, profile.trim));
  if (profile.regroup != RegroupRule::kNever) add("regroup", NameIn(kRegroups, profile.regroup));
  if (profile.reads_before) add("reads", "before");
  return text;
}

CacheProfile ParseCacheProfile(std::string_view text) {
  Fields fields(WholeLine(text), "size, bytes, empty, trimmable, trim, regroup, reads");
  CacheProfile profile;
  Piece value;
  if (fields.TakeIf("size", &value)) profile.size = ParseEnum(kSizes, value);
  if (fields.TakeIf("bytes", &value)) profile.bytes = ParseEnum(kBytes, value);
  if (fields.TakeIf("empty", &value)) profile.any_empty = ParseEnum(kAny, value);
  if (fields.TakeIf("trimmable", &value)) profile.any_trimmable = ParseEnum(kAny, value);
  if (fields.TakeIf("trim", &value)) profile.trim = ParseEnum(kTrims, value);
  if (fields.TakeIf("regroup", &value)) profile.regroup = ParseEnum(kRegroups, value);
  if (fields.TakeIf("reads", &value)) profile.reads_before = ParseEnum(kReads, value);
  fields.Finish();
  return profile;
}

}  // namespace kvcheck
