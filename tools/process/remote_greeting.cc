#include "tools/process/remote_greeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "reference/spec/case_kind.h"
#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/near_name.h"

namespace kvcheck {
namespace {

constexpr size_t kWarnings = 8;
constexpr const char* kStrangersPlan = "base=stranger";

std::string TextOf(const WireValue& value, std::string_view key) {
  const std::optional<WireValue> text = value.Find(key);
  return text ? std::string(text->AsText(fmt::format("'{}'", key))) : "";
}

// Texts of ours that somebody else wrote: what does not parse breaks the protocol.
template <typename F>
auto ParsedText(std::string_view key, const std::string& text, F parse) {
  try {
    return parse(text);
  } catch (const Error& error) {
    throw WireError(
        fmt::format("'{}' is '{}': {}", key, CleanText(text, 100), CleanText(error.message())));
  }
}

// Whether a format can have this pattern. Formats are without number, so that of one with a star
// the name before it decides.
bool IsPatternOfFormats(const std::string& pattern, const std::vector<std::string>& known) {
  const Glob glob(pattern);
  const auto matches = [&](const std::string& text) { return glob.Matches(text); };
  if (std::any_of(known.begin(), known.end(), matches)) return true;
  const size_t star = pattern.find('*');
  if (star == std::string::npos) {
    try {
      ParseKvFormat(WholeLine(pattern));
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  const size_t colon = pattern.find(':');
  const bool names_family = colon < star;
  const std::string name = pattern.substr(0, names_family ? colon : star);
  return std::any_of(known.begin(), known.end(), [&](const std::string& text) {
    const std::string family = text.substr(0, text.find(':'));
    return names_family ? family == name : family.starts_with(name);
  });
}

// Fields of a space: what is absent stays as it is.
class SpaceReader {
 public:
  explicit SpaceReader(const WireValue& space) : space_(space) {}

  void Patterns(std::string_view key, std::vector<std::string>* patterns) const {
    const auto value = space_.Find(key);
    if (!value) return;
    *patterns = value->AsTexts(Of(key));
    for (const std::string& pattern : *patterns) {
      ParsedText(key, pattern, [](const std::string& text) { return Glob(text); });
    }
  }
  // Of texts of formats: one that no format can have is a mistake, and would be drawn for nothing.
  void FormatPatterns(std::string_view key, std::vector<std::string>* patterns) const {
    if (!Find(key)) return;
    Patterns(key, patterns);
    std::vector<std::string> known;
    for (const KvFormat& format : ListedKvFormats()) known.push_back(Print(format));
    for (const std::string& pattern : *patterns) {
      if (IsPatternOfFormats(pattern, known)) continue;
      throw WireError(
          fmt::format("{} has the pattern '{}', and no format has this pattern{}; formats are "
                      "written as 'f16', "
                      "'q8_0', 'affine:4:g64:f16' (kvcheck list shows them)",
                      Of(key), CleanText(pattern, 40), DidYouMean(pattern, known)));
    }
  }
  void LayoutPatterns(std::string_view key, std::vector<std::string>* patterns) const {
    if (!Find(key)) return;
    Patterns(key, patterns);
    constexpr std::array kLayouts = {"linear", "linear:w", "ring", "ring:keep", "chunk"};
    for (const std::string& pattern : *patterns) {
      const Glob glob(pattern);
      if (std::any_of(kLayouts.begin(), kLayouts.end(),
                      [&](const char* layout) { return glob.Matches(layout); })) {
        continue;
      }
      throw WireError(
          fmt::format("{} has the pattern '{}', and no layout has this pattern; there are {}",
                      Of(key), CleanText(pattern, 40), fmt::join(kLayouts, ", ")));
    }
  }
  // Texts of two formats with a space between: of K, and of V.
  void Pairs(std::string_view key, std::vector<std::pair<KvFormat, KvFormat>>* pairs) const {
    const auto value = space_.Find(key);
    if (!value) return;
    for (const std::string& text : value->AsTexts(Of(key))) {
      const auto format = [&](const std::string& part) {
        return ParsedText(key, part,
                          [](const std::string& t) { return ParseKvFormat(WholeLine(t)); });
      };
      const size_t space = text.find(' ');
      if (space == std::string::npos) Refuse(key, text);
      pairs->emplace_back(format(text.substr(0, space)), format(text.substr(space + 1)));
    }
  }
  void Flag(std::string_view key, bool* flag) const {
    if (const auto value = space_.Find(key)) *flag = value->AsBool(Of(key));
  }
  void Types(std::string_view key, std::vector<DType>* types) const {
    if (const auto value = space_.Find(key)) *types = TypesIn(*value, key);
  }
  std::vector<DType> TypesIn(const WireValue& value, std::string_view key) const {
    std::vector<DType> types;
    for (const std::string& name : value.AsTexts(Of(key))) {
      const std::optional<DType> type = ParseDType(name);
      if (!type) throw WireError(fmt::format("{} has no type '{}'", Of(key), CleanText(name, 40)));
      types.push_back(*type);
    }
    return types;
  }
  // Calls f with the number of each name among `count` that name_of gives.
  template <typename N, typename F>
  void Names(std::string_view key, int count, N name_of, F f) const {
    const auto value = space_.Find(key);
    if (!value) return;
    for (const std::string& name : value->AsTexts(Of(key))) {
      int i = 0;
      while (i < count && name_of(i) != name) ++i;
      if (i == count) {
        throw WireError(fmt::format("{} has an unknown name '{}'", Of(key), CleanText(name, 40)));
      }
      f(i);
    }
  }
  // A bit for each name that is there; all of them where the key is not.
  template <typename N>
  void Bits(std::string_view key, int count, N name_of, uint32_t* bits) const {
    if (Find(key)) *bits = 0;
    Names(key, count, name_of, [&](int i) { *bits |= 1u << i; });
  }
  std::string Text(std::string_view key, std::string_view otherwise) const {
    const auto value = space_.Find(key);
    return value ? std::string(value->AsText(Of(key))) : std::string(otherwise);
  }
  std::optional<WireValue> Find(std::string_view key) const { return space_.Find(key); }
  static std::string Of(std::string_view key) { return fmt::format("'{}' of a space", key); }
  [[noreturn]] static void Refuse(std::string_view key, std::string_view text) {
    throw WireError(fmt::format("{} has no value '{}'", Of(key), CleanText(text, 40)));
  }

 private:
  const WireValue& space_;
};

CacheSpace ReadCacheSpace(const SpaceReader& reader) {
  CacheSpace space;
  reader.LayoutPatterns("layouts", &space.layouts);
  reader.FormatPatterns("formats", &space.formats);
  reader.Pairs("pairs", &space.pairs);
  reader.Flag("same_format", &space.same_format);
  reader.Flag("stored_as_given", &space.stored_as_given);
  reader.Types("x", &space.x);
  reader.Flag("padding", &space.padding);
  reader.Flag("same_dims", &space.same_dims);
  reader.Flag("grouped", &space.grouped);
  reader.Flag("empty_batch", &space.empty_batch);
  reader.Flag("window", &space.window);
  reader.Flag("sinks", &space.sinks);
  const std::string rows = reader.Text("rows", "any");
  if (rows == "single") {
    space.rows = SpaceRows::kSingle;
  } else if (rows == "batch") {
    space.rows = SpaceRows::kBatch;
  } else if (rows != "any") {
    SpaceReader::Refuse("rows", rows);
  }
  const std::string scales = reader.Text("scales", "any");
  if (scales != "x" && scales != "any") SpaceReader::Refuse("scales", scales);
  space.scales_as_given = scales == "x";
  reader.Bits(
      "operations", kCacheOpKinds, [](int i) { return Name(static_cast<CacheOpKind>(i)); },
      &space.operations);
  reader.Bits(
      "damages", kDamageKinds, [](int i) { return Name(static_cast<Damage>(i)); }, &space.damages);
  return space;
}

PrefixSpace ReadPrefixSpace(const SpaceReader& reader) {
  PrefixSpace space;
  if (const auto blocks = reader.Find("blocks")) {
    space.blocks = blocks->AsIntegers(SpaceReader::Of("blocks"));
  }
  reader.Types("x", &space.x);
  reader.FormatPatterns("formats", &space.formats);
  for (const auto& [key, flag] : {std::pair{"quantizes", &space.quantizes},
                                  {"same_dims", &space.same_dims},
                                  {"windows", &space.windows},
                                  {"entries", &space.entries},
                                  {"disk", &space.disk},
                                  {"tiers", &space.tiers},
                                  {"all", &space.all}}) {
    reader.Flag(key, flag);
  }
  if (const auto least = reader.Find("least_tokens")) {
    space.least_tokens = least->AsCount(SpaceReader::Of("least_tokens"));
  }
  if (const auto most = reader.Find("max_operations")) {
    space.max_operations = most->AsCount(SpaceReader::Of("max_operations"));
  }
  reader.Bits("identity", kIdentityFields, IdentityField, &space.identity);
  reader.Bits(
      "operations", kPrefixOpKinds, [](int i) { return Name(static_cast<PrefixOpKind>(i)); },
      &space.operations);
  reader.Bits(
      "damages", kFileDamages, [](int i) { return Name(static_cast<FileDamage>(i)); },
      &space.damages);
  return space;
}

AttentionSpace ReadAttentionSpace(const SpaceReader& reader) {
  AttentionSpace space;
  reader.Types("q", &space.q);
  if (const auto out = reader.Find("out")) {
    if (out->kind() != WireKind::kText) {
      space.out = reader.TypesIn(*out, "out");
    } else if (out->AsText("out") == "q") {
      space.out_as_q = true;
    } else {
      SpaceReader::Refuse("out", out->AsText("out"));
    }
  }
  reader.FormatPatterns("k", &space.k);
  reader.FormatPatterns("v", &space.v);
  reader.Patterns("masks", &space.masks);
  for (const auto& [key, flag] : {std::pair{"same_format", &space.same_format},
                                  {"same_dims", &space.same_dims},
                                  {"grouped", &space.grouped},
                                  {"lse", &space.lse},
                                  {"sinks", &space.sinks},
                                  {"softcap", &space.softcap},
                                  {"alibi", &space.alibi},
                                  {"against_original", &space.against_original}}) {
    reader.Flag(key, flag);
  }
  return space;
}

CodecSpace ReadCodecSpace(const SpaceReader& reader) {
  CodecSpace space;
  reader.FormatPatterns("formats", &space.formats);
  reader.Types("x", &space.x);
  constexpr std::array kDirections = {CodecDirection::kEncode, CodecDirection::kDecode,
                                      CodecDirection::kRoundTrip};
  const auto direction = [&](int i) { return kDirections[static_cast<size_t>(i)]; };
  reader.Names(
      "operations", static_cast<int>(kDirections.size()), [&](int i) { return Name(direction(i)); },
      [&](int i) { space.directions.push_back(direction(i)); });
  return space;
}

}  // namespace

bool Greeting::Has(std::string_view kind) const {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

namespace {

// Reads a space of the kind; null: nobody answers such cases.
using ReadSpace = void (*)(const SpaceReader& reader, Greeting* greeting);
constexpr KindTable<ReadSpace> kReadSpace = {{{
    [](const SpaceReader& reader, Greeting* greeting) {
      greeting->codec_spaces.push_back(ReadCodecSpace(reader));
    },
    [](const SpaceReader& reader, Greeting* greeting) {
      greeting->attention_spaces.push_back(ReadAttentionSpace(reader));
    },
    nullptr,  // tensor
    [](const SpaceReader& reader, Greeting* greeting) {
      greeting->cache_spaces.push_back(ReadCacheSpace(reader));
    },
    [](const SpaceReader& reader, Greeting* greeting) {
      greeting->prefix_spaces.push_back(ReadPrefixSpace(reader));
    },
}}};

}  // namespace

Greeting ReadGreeting(const WireValue& answer) {
  const int64_t protocol = answer.Get("protocol").AsInteger("'protocol'");
  if (protocol != kProtocolVersion) {
    throw WireError(fmt::format("it speaks version {} of the protocol, kvcheck speaks {}", protocol,
                                kProtocolVersion));
  }
  Greeting greeting;
  greeting.name = CleanText(answer.Get("name").AsText("'name'"), 100);
  greeting.version = CleanText(answer.Get("version").AsText("'version'"), 200);
  greeting.kinds = answer.Get("kinds").AsTexts("'kinds'");
  for (const std::string& kind : greeting.kinds) {
    const std::optional<CaseKind> known = FindCaseKind(kind);
    if (known && IsAsked(*known)) continue;
    throw WireError(fmt::format("'kinds' has '{}'; there are cache, attention, codec and prefix",
                                CleanText(kind, 40)));
  }
  greeting.cache_profile =
      ParsedText("cache_profile", TextOf(answer, "cache_profile"), ParseCacheProfile);
  greeting.prefix_profile =
      ParsedText("prefix_profile", TextOf(answer, "prefix_profile"), ParsePrefixProfile);
  if (const std::optional<WireValue> ids = answer.Find("ids_alone")) {
    greeting.ids_alone = ids->AsBool("'ids_alone'");
  }
  greeting.profile = ParsedText("profile", TextOf(answer, "profile"), ParseProfile);
  greeting.plan_text = TextOf(answer, "plan");
  greeting.plan = ParsedText(
      "plan", greeting.plan_text.empty() ? kStrangersPlan : greeting.plan_text, ParsePlan);
  if (const std::optional<WireValue> warnings = answer.Find("warnings")) {
    for (const std::string& text : warnings->AsTexts("'warnings'")) {
      if (greeting.warnings.size() < kWarnings) greeting.warnings.push_back(CleanText(text, 300));
    }
  }
  const std::optional<WireValue> spaces = answer.Find("spaces");
  if (!spaces) return greeting;
  for (const WireValue& value : spaces->Entries("'spaces'")) {
    const std::string_view kind = value.Get("kind").AsText("'kind' of a space");
    const SpaceReader reader(value);
    const std::optional<CaseKind> known = FindCaseKind(kind);
    if (!known || kReadSpace[*known] == nullptr) SpaceReader::Refuse("kind", kind);
    kReadSpace[*known](reader, &greeting);
  }
  return greeting;
}

void WriteGreeting(const Greeting& greeting, WireWriter& writer) {
  const auto text = [&](std::string_view key, std::string_view value) {
    writer.Key(key);
    writer.Text(value);
  };
  writer.Key("protocol");
  writer.Integer(kProtocolVersion);
  text("name", greeting.name);
  text("version", greeting.version);
  writer.Key("kinds");
  writer.StartArray(greeting.kinds.size());
  for (const std::string& kind : greeting.kinds) writer.Text(kind);
  text("cache_profile", Print(greeting.cache_profile));
  text("prefix_profile", Print(greeting.prefix_profile));
  text("profile", Print(greeting.profile));
  if (!greeting.plan_text.empty()) text("plan", greeting.plan_text);
}

}  // namespace kvcheck
