#include "tools/kvcheck/common_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <thread>

#include "reference/spec/error.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {
namespace {

constexpr const char* kGroup = "Judging and reporting";

}  // namespace

CLI::Validator Decimal() {
  const auto read = [](std::string& text) -> std::string {
    // What is not digits alone is judged by the option's type.
    if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return "";
    text.erase(0, std::min(text.find_first_not_of('0'), text.size() - 1));
    uint64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc()) return "";
    return fmt::format("{} is larger than 2^64 - 1", text);
  };
  return CLI::Validator(read, "");
}

void AddCountOption(CLI::App* command, const std::string& name, int64_t* value, int64_t most,
                    const std::string& help) {
  command->add_option(name, *value, help)
      ->transform(Decimal())
      ->check(CLI::Range(int64_t{1}, most))
      ->type_name("N")
      ->capture_default_str();
}

void RefuseEmptyValues(CLI::App* command) {
  const CLI::Validator not_empty(
      [](std::string& text) -> std::string {
        return text.empty() ? "the value is empty; leave the option out, or give it one" : "";
      },
      "");
  for (CLI::Option* option : command->get_options()) {
    if (option->get_items_expected_max() > 0) option->check(not_empty);
  }
  for (CLI::App* under : command->get_subcommands([](CLI::App*) { return true; })) {
    RefuseEmptyValues(under);
  }
}

void AddReportOptions(CLI::App* command, CommonOptions* options) {
  options->threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  command
      ->add_option("--json", options->json,
                   "Write a JSON report to FILE; - is standard output, in place of the text")
      ->type_name("FILE")
      ->group(kGroup);
  command->add_option("--junit", options->junit, "Write a JUnit XML report to FILE, or -")
      ->type_name("FILE")
      ->group(kGroup);
  command
      ->add_option("--html", options->html,
                   "Write a report for a browser to FILE, or -: one file that loads nothing")
      ->type_name("FILE")
      ->group(kGroup);
  command
      ->add_flag(
          "--github", options->github,
          "In a workflow of GitHub: annotations on standard output, and a Markdown summary "
          "appended to the file that GITHUB_STEP_SUMMARY names (elsewhere: a warning, and no "
          "summary)")
      ->group(kGroup);
  command
      ->add_option("-j,--threads", options->threads,
                   "Threads; results do not depend on it (default: all of the hardware)")
      ->transform(Decimal())
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->group(kGroup);
  command
      ->add_flag(
          "--strict", options->text.strict,
          "Warnings and results that are MISTRUSTED or UNSUPPORTED are failures. Drawn cases that "
          "prove nothing by their own data, whoever answers, are none: they are counted apart "
          "(mistrusted_by_data)")
      ->group(kGroup);
  command
      ->add_option("--max-print", options->text.max_print,
                   "Cases of each outcome shown in detail, and lines of each list")
      ->transform(Decimal())
      ->check(CLI::Range(0, 1000000000))
      ->type_name("N")
      ->capture_default_str()
      ->group(kGroup);
  CLI::Option* quiet = command->add_flag("-q,--quiet", options->text.quiet,
                                         "Print only what is not as it should be, and the counts");
  quiet->group(kGroup);
  command
      ->add_flag("-v,--verbose", options->text.verbose,
                 "Everything that is known, of cases that passed too: counts, maps, metrics, "
                 "statistics, sensitivity, plan, probes")
      ->excludes(quiet)
      ->group(kGroup);
}

void AddCommonOptions(CLI::App* command, CommonOptions* options) {
  AddReportOptions(command, options);
  command
      ->add_option_function<std::string>(
          "--rule", [options](const std::string& word) { options->rule = *ParseRule(word); },
          "By what attention fails: statistics (the default: beyond what roundings of random phase "
          "make, bound.md, sections 4 and 5) or bound (beyond what any right kernel can make)")
      ->check(CLI::IsMember({Name(Rule::kStatistics), Name(Rule::kBound)}))
      ->type_name("")
      ->group(kGroup);
  command
      ->add_option("--must-see", options->must_see,
                   "Faults by commas, or standard (the default under --strict), or none: attention "
                   "that passes where such a fault would not have been seen is MISTRUSTED (what a "
                   "PASS could not see stands in its first line)")
      ->check([](const std::string& list) {
        try {
          MustSee(list, false, Rule::kStatistics);
          return std::string();
        } catch (const Error& error) {
          return error.message();
        }
      })
      ->type_name("LIST")
      ->group(kGroup);
  command->add_flag("--blocks", options->text.blocks, "Draw heat maps with UTF-8 shades")
      ->group(kGroup);
}

void AddMaxUnprovedOption(CLI::App* command, int* percent) {
  command
      ->add_option("--max-unproved", *percent,
                   "Exit 3 where more than so many percent of the drawn cases prove nothing "
                   "(MISTRUSTED or UNSUPPORTED); cases whose own data can prove nothing are "
                   "counted apart")
      ->transform(Decimal())
      ->check(CLI::Range(0, 100))
      ->type_name("PERCENT")
      ->capture_default_str();
}

void AddRowsOptions(CLI::App* command, CommonOptions* options) {
  CLI::Option* rows =
      command
          ->add_option("--rows", options->sample_rows,
                       "Judge a sample of so many rows of each output of a case: first and last "
                       "ones of each head, edges of query tiles, masked ones, the rest at random; "
                       "the verdict says what a fault has as a chance to be missed")
          ->transform(Decimal())
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
          ->type_name("N")
          ->group(kGroup);
  command->add_option("--rows-seed", options->sample_seed, "Which ones at random")
      ->transform(Decimal())
      ->type_name("SEED")
      ->capture_default_str()
      ->needs(rows)
      ->group(kGroup);
}

void AddSampleOption(CLI::App* command, int64_t* sample_rows) {
  command
      ->add_option("--sample", *sample_rows,
                   "Rows of every case, at least, that 50 digits re-check (whole tiles)")
      ->transform(Decimal())
      ->check(CLI::Range(0, 1000000000))
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace kvcheck
