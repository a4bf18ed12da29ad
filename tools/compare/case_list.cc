#include "tools/compare/case_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "golden/strict_json.h"
#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "reference/spec/text_lines.h"

namespace kvcheck {
namespace {

using nlohmann::json;

constexpr const char* kForm =
    R"(a line is {"name": "...", "case": "...", "plan": "...", "got": "FILE"})";

// What is wrong with a line.
[[noreturn]] void RefuseLine(const std::string& reason) { throw Error(ErrorCode::kParse, reason); }

class LineReader {
 public:
  LineReader(const CompareQuestion& common, const std::string& file)
      : common_(common), folder_(std::filesystem::path(file).parent_path()) {}

  ListedCase Read(std::string_view line) {
    std::optional<std::string> twice;
    const json object = ParseStrictJson(line, &twice);
    if (twice) RefuseLine(fmt::format("it has the key '{}' twice: leave one out", *twice));
    if (line.starts_with('[')) {
      RefuseLine(
          "it is a JSON array: write one object a line (in Python: for c in cases: "
          "print(json.dumps(c), file=f))");
    }
    if (!object.is_object()) {
      RefuseLine(fmt::format("it is no JSON object in one line; {}", kForm));
    }
    CompareQuestion asked = common_;
    asked.cases.clear();
    asked.include.clear();
    asked.exclude.clear();
    asked.shard.clear();
    std::string name, got, inputs, gold, group;
    const std::map<std::string, std::string*> texts = {
        {"name", &name},       {"case", &asked.case_text},
        {"plan", &asked.plan}, {"profile", &asked.profile},
        {"got", &got},         {"inputs", &inputs},
        {"gold", &gold},       {"gold_plan", &asked.gold_plan},
        {"group", &group},     {"cast", &asked.cast}};
    for (const auto& [key, value] : object.items()) {
      if (const auto text = texts.find(key); text != texts.end()) {
        if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
          RefuseLine(fmt::format("'{}' is no text with something in it", key));
        }
        *text->second = value.get<std::string>();
      } else if (key == "map" || key == "axes") {
        AddChoices(key, value, key == "map" ? &asked.map : &asked.axes);
      } else {
        std::vector<std::string> known = {"map", "axes"};
        for (const auto& [other, ignored] : texts) known.push_back(other);
        RefuseLine(
            fmt::format("it has a key '{}'{}; the keys are name, case, plan, profile, got, "
                        "inputs, gold, gold_plan, group, map, axes, cast",
                        Shortened(key, 80), DidYouMean(key, known)));
      }
    }
    const auto need = [&](const std::string& value, const char* key, const char* what) {
      if (value.empty()) RefuseLine(fmt::format("it has no '{}', {}; {}", key, what, kForm));
    };
    need(name, "name", "which the report calls the case by");
    need(asked.case_text, "case", "and --case says none for all");
    need(got, "got", "the file with the outputs");
    if (!names_.insert(name).second) {
      RefuseLine(fmt::format("a line before it has the name '{}' too: names tell results apart",
                             Shortened(name, 200)));
    }
    if (!gold.empty() && !inputs.empty()) {
      RefuseLine("'gold' has the inputs, too: leave 'inputs' out");
    }
    if (!gold.empty() && asked.gold_plan.empty()) {
      RefuseLine("'gold' needs 'gold_plan': how its outputs were computed");
    }
    if (gold.empty() && !asked.gold_plan.empty()) {
      RefuseLine("'gold_plan' needs 'gold': the file of the run that is believed");
    }
    asked.files.clear();
    for (const std::string& path : {gold, inputs, got}) {
      if (!path.empty()) asked.files.push_back((folder_ / path).string());
    }
    if (!group.empty()) {
      while (group.starts_with('/')) group.erase(0, 1);
      asked.groups = {Glob::Of(group)};
    }
    PlanOf(asked, "");
    ProfileOf(asked, "");
    FileCase files(std::move(asked));
    if (OutputSpecs(files.c()).empty()) {
      RefuseLine("a trace of operations has no tensors to compare: kvcheck run judges it");
    }
    return {std::move(name), std::move(files), std::move(group)};
  }

 private:
  // {"q": "/query"}, or for axes one text for all tensors.
  static void AddChoices(const std::string& key, const json& value,
                         std::vector<std::string>* choices) {
    choices->clear();
    if (value.is_string() && key == "axes") {
      choices->push_back(value.get<std::string>());
      return;
    }
    const bool are_texts =
        value.is_object() &&
        std::all_of(value.begin(), value.end(), [](const json& of) { return of.is_string(); });
    if (!are_texts) {
      RefuseLine(key == "map" ? R"('map' is no object of texts: {"q": "/query", ...})"
                              : R"('axes' is neither a text, "B,T,H,D", nor {"q": "B,T,H,D"})");
    }
    for (const auto& [name, text] : value.items()) {
      choices->push_back(name + "=" + text.get_ref<const std::string&>());
    }
  }

  const CompareQuestion& common_;
  std::filesystem::path folder_;
  std::set<std::string> names_;
};

}  // namespace

std::vector<ListedCase> ParseCaseList(const CompareQuestion& common, std::string_view text,
                                      const std::string& file) {
  constexpr size_t kMostNumbers = 10;
  std::vector<ListedCase> cases;
  std::string first;            // what is wrong with the first line that cannot be read
  std::vector<int64_t> others;  // numbers of those after it
  int64_t at = 0;
  LineReader reader(common, file);
  TextLines lines(text);
  std::string_view line;
  while (lines.Next(&line)) {
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    try {
      cases.push_back(reader.Read(line.substr(begin)));
    } catch (const Error& error) {
      if (!first.empty()) {
        others.push_back(lines.number());
        continue;
      }
      at = lines.number();
      first = error.context().empty() ? error.message()
                                      : fmt::format("{}: {}", error.context(), error.message());
    }
  }
  if (!first.empty()) {
    const size_t more = others.size();
    others.resize(std::min(others.size(), kMostNumbers));
    throw Error(ErrorCode::kParse,
                more == 0 ? first
                          : fmt::format("{}; {} more line{} cannot be read: {}{}", first, more,
                                        more == 1 ? "" : "s", fmt::join(others, ", "),
                                        more > kMostNumbers ? ", ..." : ""),
                fmt::format("{}:{}", file, at));
  }
  if (cases.empty()) {
    throw Error(ErrorCode::kSelection, fmt::format("the list has no cases; {}", kForm), file);
  }
  return cases;
}

}  // namespace kvcheck
