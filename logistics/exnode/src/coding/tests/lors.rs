//! What `lors_upload` of LoRS 0.82 has stored (dlt-lors fdc5429, with MD5 and DES of 32-bit words as on
//! the machines of its time), and its exNodes say of it.

use super::super::*;
use super::load;

/// What was uploaded, or the beginning of it.
const CLEAR: &[u8] =
    b"# Logistic storage: depots, exNodes and tools\n\nA file can be stored in the \
    network without a volume: a";

struct Made {
    options: &'static str,
    clear_bytes: usize,
    e2e_blocksize: u64,
    /// Outermost first, with the size of a block after each.
    functions: &'static [(&'static str, i64)],
    key: &'static str,
    stored: &'static str,
}

const MADE: &[Made] = &[
    Made {
        options: "-x -E 40",
        clear_bytes: 100,
        e2e_blocksize: 40,
        functions: &[("xor_encrypt", 40)],
        key: "6Ydv0[h",
        stored: "4b20246f0f691b74016348731c6f1a610f6552200c65186f1c7344200d78266f0c651b20096e0c201c6f076c\
         1b0a62414866016c0d200b6106200a6548731c6f1a650c20016e48740065486e0d741f6f1a6b48770174006f\
         1d7448614876076c1d6d0d3a",
    },
    Made {
        options: "-a -E 48",
        clear_bytes: 100,
        e2e_blocksize: 48,
        functions: &[("aes_encrypt", 64)],
        key: "f580e580ad80e180e480ca80e9806380",
        stored: "2676458d4be931f238156e0799edbcf2641355e9c24442147c794e4f3b833af390e3c05e708be004a6f76ed3\
         a6fc45b0c3b27639a99d0901e32790760fe7a45ac3b27639a99d0901e32790760fe7a45a125c1474ab060edb\
         19d9880d9d3817421c5371385c7e2d59fc2d6efdfd969f3c313ca7b2ca9a57acccd523d3542e7bc1313ca7b2\
         dda1dc429c387b38ba3590918d05ac0d",
    },
    Made {
        options: "-a",
        clear_bytes: 10,
        e2e_blocksize: 1048576,
        functions: &[("aes_encrypt", 1048592)],
        key: "d88056807f804780718089807f80f580",
        stored: "89416fd8fc728120ba2eef75394fdc9e84c6d987cc49dd419763",
    },
    Made {
        options: "-k -E 40",
        clear_bytes: 100,
        e2e_blocksize: 40,
        functions: &[("checksum", 73)],
        key: "",
        stored: "35396661616137623534656233376237646263636564653933393831303536373a23204c6f67697374696320\
         73746f726167653a206465706f74732c2065784e6f64657320616e6420316231316534333439366637326266\
         63336266626633303164343733316538653a746f6f6c730a0a412066696c652063616e2062652073746f7265\
         6420696e20746865206e6574776f373534363435313337323138633935343062326135336666346131353238\
         34323a726b20776974686f7574206120766f6c756d653a",
    },
    Made {
        options: "-e -E 40",
        clear_bytes: 100,
        e2e_blocksize: 40,
        functions: &[("des_encrypt", 42)],
        key: "W!#eYA+",
        stored: "303a84ab999f3373b95305e7e1572e9f61220cdaee0cc6181d169dfee04c9573a065d9fca923e80bd766303a\
         8fc355278600e4d775fb08d18c5e20adb6d9b141c3a1022448340047b432b11dee83efd99dbd553e343a42c8\
         674b0e96ec466bb54c968220bef87d21e0d5930d3e73",
    },
    Made {
        options: "-k -a -E 40",
        clear_bytes: 100,
        e2e_blocksize: 40,
        functions: &[("aes_encrypt", 96), ("checksum", 73)],
        key: "d88056807f804780718089807f80f580",
        stored: "89416fd8fc728120ba2ef1a0731e5808696937762f8037cfc79f9a1e7bdcd1b30dbfd02ab4dcbf854248a068\
         1e0bcd931260dfdde349a85122287b77c4eb2baf6099678e08e191a73bb6dc10937a53815cfa602c9550d139\
         b40989b2bee96cce5cfa602c9550d139b40989b2bee96cce82f3e0293d858e7d88df3d38fc7657eb894e91d3\
         eb528cc6d8d71fd3dbf13dbcdc51795bd137975cea25315e2c02c153203420493d1baeede7022e27461a7a7e\
         6943173914e3043ec8402a4a5dde07af6943173914e3043ec8402a4a5dde07af1ff00b1def0cc425d1a1f098\
         c83ae23fca23d1268f32b9c722b8f2064e4dfe0cd2a4bcee709aca",
    },
    Made {
        options: "-k -e -E 40",
        clear_bytes: 100,
        e2e_blocksize: 40,
        functions: &[("des_encrypt", 82), ("checksum", 73)],
        key: "JwmSRUM",
        stored: "373af69db5c4c45fb3ae6801a0d7910a863e438b64e3b0e6d676d2c06617810de06766a9386909de19238068\
         8eacdb55dd58e245fcf6e9189fd97a5fa801d3c7e120b6782d08d795223ac4c3b679c4c1e8b3373a5ab6d159\
         3e2fba7deb61604ea05602af748c118892a8e1a26c20685535a53cd56616a33ebcaf9ed4cbd90b9a83404d6a\
         b06e4d4af0dd1b2d65b256fdf26a6ea9b96b6121a723c66025b208b9ac52fde9333ab168153a008868366970\
         8bad45353484eff4a6ed923c5391ead9dfb60b9a390878e32ba8148da7d5aef5f5f2cba29e786d4bf2b004ea\
         32f6",
    },
    Made {
        options: "-k -z -E 40",
        clear_bytes: 100,
        e2e_blocksize: 100,
        functions: &[("zlib_compress", 179), ("checksum", 73)],
        key: "",
        stored: "3030303030303030303139393a789c1dcc416e03210c00c07b5e6129d71ed66096855bee55ff6083495037eb\
         2890a6cfafd479c084d498394a20151f25562945ab269f365cc21af3193eeddac7ec05c6b4275f3543d587cd\
         f101fafb655507f051010551c9535a5b74d28a9726cd2f58297ad44df334dbc7e97481d67785c20788fe975a\
         a11f306f0a87ceb7c5402b05f4d1e15652a0451c07df1a3106b791cbcf6f78f779b3d704861fdb5f77cd7f3d\
         123e01",
    },
    Made {
        options: "-k -z -a -E 40",
        clear_bytes: 100,
        e2e_blocksize: 100,
        functions: &[
            ("aes_encrypt", 208),
            ("zlib_compress", 179),
            ("checksum", 73),
        ],
        key: "8c80eb8003804a8032806d809d809d80",
        stored: "74f54fb481700f1773e223a35b3c28970ba9b4ebe604acf379ad09a48e251a84eacc6d9d8f9836391b997941\
         f84b2fbfd83da1f919ddc658330906b3e67d2f3d1a58a2d51f0db662db3eb2228358afc31f96d98c1e9755da\
         f3adad4206f226d60b1cfdce5f654886b11f2411208b085771d635a4ee88d5e53e10547392261d1db326bfaf\
         e7436e412cb05720908dfc4f01095a90649776da7b5a8a9e0110d671dd39a36f150276a8e1719195c45a1b48\
         830b134fe64608e4547d370b725378f65ea1d1",
    },
    Made {
        options: "-k -z -x -E 40",
        clear_bytes: 100,
        e2e_blocksize: 100,
        functions: &[
            ("xor_encrypt", 179),
            ("zlib_compress", 179),
            ("checksum", 73),
        ],
        key: "JwmSRUM",
        stored: "7d307d307d307d307d3174397778d11d814123036c0c4dc0365e2c299a1e9b60db8516ee18ff2d8304507aeb\
         6590ebcfe2d434c0c9d4d5390720581f68566445e626d23611c257f3543ea0da8aec48c6f92712350ed5cacd\
         bc01b7fb28554af01c0148518453175b39d2c7976bcd6258647a994dbe3496c7a474ccd63a858f07c5feda5a\
         ec1f7d6f478783b788406605b9d1ac561fa0081c4adf57314bb7dccb826f35f734b39a04cb1f965f3acd323d\
         5f3e4c",
    },
];

/// Goal: all that LoRS does to bytes, alone and one behind the other, in several blocks, is undone.
#[test]
fn what_lors_has_stored_is_read() {
    for made in MADE {
        let mut function: Option<Function> = None;
        for &(name, size) in made.functions.iter().rev() {
            let arguments = [("blocksize", Value::Integer(size))];
            let is_keyed = name.ends_with("_encrypt");
            let key = is_keyed.then(|| ("KEY", Value::Text(made.key.to_owned())));
            let arguments = arguments.into_iter().chain(key);
            function = Some(Function {
                name: name.to_owned(),
                arguments: arguments.map(|(name, it)| (name.to_owned(), it)).collect(),
                inner: function.into_iter().collect(),
                ..Function::default()
            });
        }
        let digits: Vec<u8> = made.stored.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pairs = digits.chunks(2).map(|pair| str::from_utf8(pair).unwrap());
        let bytes: Vec<u8> = pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect();
        let mapping = Mapping {
            logical_length: made.clear_bytes as u64,
            alloc_length: bytes.len() as u64,
            e2e_blocksize: made.e2e_blocksize,
            function,
            ..Mapping::default()
        };
        let clear = &CLEAR[..made.clear_bytes];
        let all = load(&mapping, &bytes, 0..made.clear_bytes as u64);
        assert_eq!(all.as_deref(), Ok(clear), "{}", made.options);
        let part = load(&mapping, &bytes, 3..9);
        assert_eq!(part.as_deref(), Ok(&clear[3..9]), "{}", made.options);
        let mut short = mapping.clone();
        short.alloc_length -= 1;
        let all = 0..made.clear_bytes as u64;
        assert!(load(&short, &bytes, all).is_err(), "{}", made.options);
    }
}
